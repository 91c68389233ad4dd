// Measures the time to first token of a chat whose KV is in a slow tier, on the real engine
// (docs/kv-tiers.md):
//   slow_tier_bench [--tokens 2048] [--rounds 5] [--threads N]
// The tier is memory that takes a set time for a token, in units of what the model takes to compute
// one. Without the tier all is computed; then the loads end before the prompt begins, or the slower
// side computes; then loads from the back meet the chunks. The model has random weights and the KV
// of a 1B shape: 16 layers, 8 heads of 64, BF16. Prints medians in units of computing.
#include <fmt/format.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>  // tidy: allow(heavy-header) a program of its own
#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "apps/make_device.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "engine/engine_loader.h"
#include "kv/block_hash.h"
#include "offload/kv_tier.h"
#include "scheduler/block_pager.h"

namespace sluice::bench {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
  "vocab_size": 1024, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 16,
  "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
  "max_position_embeddings": 16384, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
  "tie_word_embeddings": true, "bos_token_id": 0, "eos_token_id": 0})";
constexpr std::int64_t kTokenBytes = 2 * 2 * 16 * 8 * 64;  // of KV
constexpr std::int32_t kBlockTokens = 16;

struct Options {
  int tokens = 2048;
  int rounds = 5;
  int threads = available_cpus();
};

// Loads take `per_block` one after another; saves take nothing.
class PacedTier final : public KvTier {
 public:
  PacedTier(std::int32_t pages, Duration per_block, const Clock& clock)
      : pages_(pages), per_block_(per_block), clock_(clock) {}

  std::int32_t num_pages() const override { return pages_; }
  std::vector<TierPage> take_stored() override { return {}; }
  bool accepts_saves() const override { return true; }
  void save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) override {
    kept_[page.page].assign(block.begin(), block.end());
    ended_.push_back({id, {}});
  }
  void load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) override {
    free_at_ = std::max(free_at_, clock_.now()) + per_block_;
    loads_.push_back({id, page.page, block, free_at_});
  }
  void touch(std::int32_t /*page*/) override {}
  void erase(std::int32_t page) override { kept_.erase(page); }
  void poll(std::vector<TierMove>& ended) override {
    for (; !loads_.empty() && loads_.front().done <= clock_.now(); loads_.pop_front()) {
      const std::vector<std::byte>& kept = kept_.at(loads_.front().page);
      std::copy(kept.begin(), kept.end(), loads_.front().block.begin());
      ended_.push_back({loads_.front().id, {}});
    }
    for (TierMove& move : ended_) ended.push_back(std::move(move));
    ended_.clear();
  }
  void wait(Duration at_most) override {
    if (!ended_.empty() || loads_.empty()) return;
    const Duration left = loads_.front().done - clock_.now();
    std::this_thread::sleep_for(std::clamp(left, Duration(0), at_most));
  }
  Status flush(Duration /*at_most*/) override { return {}; }

 private:
  struct Load {
    std::uint64_t id = 0;
    std::int32_t page = 0;
    std::span<std::byte> block;
    TimePoint done;
  };

  std::int32_t pages_;
  Duration per_block_;
  const Clock& clock_;
  std::unordered_map<std::int32_t, std::vector<std::byte>> kept_;
  std::deque<Load> loads_;
  std::vector<TierMove> ended_;
  TimePoint free_at_;
};

struct Bench {
  SystemClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  LoadedEngine loaded;
};

// Two chats take turns; memory has room for one. `per_block` 0: there is no tier.
std::unique_ptr<Bench> start(const std::string& model, const Options& options, Duration per_block,
                             bool meets) {
  auto bench = std::make_unique<Bench>();
  EngineOptions engine;
  engine.load_format = LoadFormat::kDummy;
  engine.threads = options.threads;
  engine.max_num_seqs = 2;
  engine.max_model_len = options.tokens + 64;
  engine.token_budget = 256;
  engine.kv_cache_memory = kTokenBytes * options.tokens * 5 / 4;
  if (!meets) engine.meeting_tokens = 0;
  bench->pool = make_pool(engine);
  bench->device = make_device(engine, *bench->pool).value();
  StartupTimeline timeline(bench->clock);
  LoadedExecutor parts =
      load_executor(model, engine, *bench->device, *bench->pool, timeline).value();
  if (per_block > Duration(0)) {
    const std::int32_t pages = 4 * options.tokens / kBlockTokens;
    CHECK(add_tier(std::make_unique<PacedTier>(pages, per_block, bench->clock),
                   TierEviction::kLeastRecent, parts));
  }
  bench->loaded = make_engine(std::move(parts), bench->clock, timeline);
  return bench;
}

Request chat(std::uint64_t which, const Options& options) {
  static RequestId next_id = 1;
  SplitMix64 random(which);
  Request request;
  request.id = next_id++;
  for (int i = 0; i < options.tokens; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1 + random.below(1000)));
  }
  request.sampling.max_tokens = 1;
  request.sampling.ignore_eos = true;
  KvIdentity identity;
  identity.block_size = kBlockTokens;
  request.block_hash_root = block_hash_root(identity);
  request.block_hashes =
      BlockHasher(*request.block_hash_root, kBlockTokens).hash_prompt(request.prompt);
  return request;
}

double run(Bench& bench, Request request) {
  Engine& engine = *bench.loaded.engine;
  const TimePoint begun = bench.clock.now();
  CHECK(engine.add_request(std::move(request)));
  while (engine.has_work()) CHECK(engine.step());
  return std::chrono::duration<double>(bench.clock.now() - begun).count();
}

// The median time of a turn, after turns in which the rates are learnt.
double median_turn(Bench& bench, const Options& options) {
  std::vector<double> times;
  for (int i = 0; i < 6 + 2 * options.rounds; ++i) {
    const double took = run(bench, chat(static_cast<std::uint64_t>(i % 2), options));
    if (i >= 6) times.push_back(took);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void measure(const Options& options) {
  std::string model = std::filesystem::temp_directory_path() / "slow_tier_bench_XXXXXX";
  CHECK(mkdtemp(model.data()) != nullptr);
  CHECK(write_file(model + "/config.json", kConfig));
  const double computed = median_turn(*start(model, options, Duration(0), true), options);
  fmt::print("a prompt of {} tokens, computed: 1\n", options.tokens);
  fmt::print(
      "| a token is loaded in | loads first, or computed | loads from the back |\n|---|---|---|\n");
  for (const double ratio : {0.125, 0.5, 1.0, 2.0, 8.0}) {
    const double seconds = ratio * computed / options.tokens * kBlockTokens;
    const auto per_block = Duration(static_cast<Duration::rep>(1e9 * seconds));
    const double first = median_turn(*start(model, options, per_block, false), options);
    const auto bench = start(model, options, per_block, true);
    const double met = median_turn(*bench, options);
    fmt::print("| {} | {:.2f} | {:.2f} |\n", ratio, first / computed, met / computed);
    std::fflush(stdout);
  }
  std::filesystem::remove_all(model);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Options options;
  CLI::App app("The time to first token with KV in a slow tier.");
  app.add_option("--tokens", options.tokens, "of a chat")->check(CLI::Range(512, 16000));
  app.add_option("--rounds", options.rounds, "measured, of two turns each")
      ->check(CLI::Range(1, 100));
  app.add_option("--threads", options.threads, "that compute")->check(CLI::Range(1, 256));
  CLI11_PARSE(app, argc, argv);
  sluice::bench::measure(options);
  return 0;
}
