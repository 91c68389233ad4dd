// Random lives of adapters in an engine: loads and reloads under names, unloads, requests, cancels,
// few slots, late copies, two steps in flight. Each request ends with the bits of the content that
// its name had when it came, and an index never stands for other content again.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/model_config.h"
#include "tests/golden/golden_case.h"
#include "tests/support/adapter_files.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

using test::ChoiceResult;
using test::EngineFixture;
using test::Results;

constexpr std::size_t kContents = 6;
constexpr std::size_t kPrompts = 3;
constexpr std::int32_t kLongest = 14;  // tokens of an answer

class AdapterReloads : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                            checkpoint_.path());
    config_ = *load_model_config(checkpoint_.path());
    for (std::size_t i = 0; i < kContents; ++i) {
      write_random_adapter(adapters_.file(std::to_string(i)), config_,
                           static_cast<std::int32_t>(1 + 2 * i), i + 1, 0.3F);
    }
    make_expected();
  }

  EngineOptions options() const {
    EngineOptions options;
    options.max_num_seqs = 6;
    options.max_model_len = 64;
    options.block_size = 4;
    options.adapters.at_run_time = true;
    options.adapters.max_rank = 16;
    return options;
  }

  std::unique_ptr<Device> late_device() const {
    return std::make_unique<test::LateDevice>(*make_cpu_device({.threads = 1}));
  }

  static Request make_request(RequestId id, std::size_t prompt, std::int32_t max_tokens) {
    std::vector<TokenId> tokens;
    for (TokenId token = 1; token < 9; ++token) {
      tokens.push_back(token * static_cast<TokenId>(prompt + 1));
    }
    Request request = test::greedy_request(id, tokens, max_tokens);
    request.sampling.temperature = 0.9F;
    request.sampling.seed = prompt;
    request.sampling.logprobs = 0;
    return request;
  }

  // Each content and prompt alone, by the content's digest.
  void make_expected() {
    EngineFixture fixture(checkpoint_.path(), options(), 1, late_device());
    for (std::size_t i = 0; i < kContents; ++i) {
      const auto loaded = fixture.loaded().adapters->load("x", adapters_.file(std::to_string(i)));
      ASSERT_TRUE(loaded) << loaded.error().message;
      for (std::size_t prompt = 0; prompt < kPrompts; ++prompt) {
        Request request = make_request(1, prompt, kLongest);
        request.adapter = (*loaded)->content->index;
        fixture.add(std::move(request));
        const Results results = fixture.run_to_end();
        expected_[{(*loaded)->content->image.digest, prompt}] = results.at({1, 0});
      }
    }
  }

  TempDirectory checkpoint_;
  TempDirectory adapters_;
  ModelConfig config_;
  std::map<std::pair<std::string, std::size_t>, ChoiceResult> expected_;
};

// A life of one engine, with all that is known of its requests.
class Life {
 public:
  struct Sent {
    std::string digest;
    std::size_t prompt = 0;
    std::int32_t max_tokens = 0;
    bool cancelled = false;
  };

  Life(EngineFixture& fixture, std::uint64_t seed) : fixture_(fixture), rng_(seed) {}

  AdapterStore& store() { return *fixture_.loaded().adapters; }
  std::size_t pick(std::size_t count) { return rng_.below(count); }
  std::string pick_name() { return kNames[pick(kNames.size())]; }

  void load(const std::string& directory) {
    const auto loaded = store().load(pick_name(), directory);
    ASSERT_TRUE(loaded) << loaded.error().message;
    const AdapterContent& content = *(*loaded)->content;
    const auto [known, added] = digests_.emplace(content.index, content.image.digest);
    EXPECT_EQ(known->second, content.image.digest) << "index " << content.index;
    reused_ += added ? 0 : 1;
  }
  void unload() { store().remove(pick_name()); }

  void send(Request request, std::size_t prompt) {
    const SharedAdapter adapter = store().find(pick_name());
    if (adapter == nullptr) return;
    request.adapter = adapter->content->index;
    sent_[request.id] = {adapter->content->image.digest, prompt, request.sampling.max_tokens};
    fixture_.add(std::move(request));
  }
  void cancel() {
    if (sent_.empty()) return;
    const auto one = std::next(sent_.begin(), static_cast<std::ptrdiff_t>(pick(sent_.size())));
    if (results_[{one->first, 0}].finish_reason != FinishReason::kNone) return;
    fixture_.engine().cancel(one->first);
    one->second.cancelled = true;
  }
  void step() {
    if (fixture_.engine().has_work()) fixture_.step(results_);
  }
  void finish() {
    while (fixture_.engine().has_work()) fixture_.step(results_);
  }

  template <class Expected>
  void check(const Expected& expected) {
    for (const auto& [id, sent] : sent_) {
      const ChoiceResult& got = results_.at({id, 0});
      const ChoiceResult& whole = expected.at({sent.digest, sent.prompt});
      const bool early = sent.cancelled && got.finish_reason == FinishReason::kCancelled;
      if (!early) {
        EXPECT_EQ(got.finish_reason, FinishReason::kLength) << "request " << id;
        EXPECT_EQ(got.tokens.size(), static_cast<std::size_t>(sent.max_tokens));
      }
      ASSERT_LE(got.tokens.size(), whole.tokens.size());
      for (std::size_t i = 0; i < got.tokens.size(); ++i) {
        ASSERT_EQ(got.tokens[i], whole.tokens[i]) << "request " << id << ", token " << i;
        ASSERT_EQ(got.logprobs[i].logprob, whole.logprobs[i].logprob) << "request " << id;
      }
      cancelled_ += early ? 1 : 0;
    }
    // Nothing is held any more but what a name has.
    std::set<std::int32_t> named;
    for (const SharedAdapter& adapter : store().list()) named.insert(adapter->content->index);
    for (std::int32_t i = 0; i < store().num_contents(); ++i) {
      alive_beyond_names_ += store().content(i) != nullptr && !named.contains(i) ? 1 : 0;
    }
  }

  std::size_t num_sent() const { return sent_.size(); }
  std::size_t num_cancelled() const { return cancelled_; }
  std::size_t num_indices() const { return digests_.size(); }
  std::size_t num_reused() const { return reused_; }
  std::size_t alive_beyond_names() const { return alive_beyond_names_; }

 private:
  static constexpr std::array<const char*, 3> kNames = {"one", "two", "three"};

  EngineFixture& fixture_;
  SplitMix64 rng_;
  std::map<RequestId, Sent> sent_;
  Results results_;
  std::map<std::int32_t, std::string> digests_;  // by index, over the whole life
  std::size_t reused_ = 0;                       // loads of content that was still held
  std::size_t cancelled_ = 0;
  std::size_t alive_beyond_names_ = 0;
};

TEST_F(AdapterReloads, RequestsKeepTheContentWithWhichTheyCame) {
  std::size_t sent = 0;
  std::size_t cancelled = 0;
  std::size_t indices = 0;
  std::size_t reused = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    EngineOptions few = options();
    few.adapters.slots = static_cast<std::int32_t>(1 + seed % 3);
    few.steps_in_flight = static_cast<std::int32_t>(1 + seed % 2);
    EngineFixture fixture(checkpoint_.path(), few, 1, late_device());
    Life life(fixture, seed);
    for (RequestId id = 1; id <= 400; ++id) {
      switch (life.pick(8)) {
        case 0:
          ASSERT_NO_FATAL_FAILURE(life.load(adapters_.file(std::to_string(life.pick(kContents)))));
          break;
        case 1: life.pick(3) == 0 ? life.unload() : life.cancel(); break;
        case 2:
        case 3: {
          const std::size_t prompt = life.pick(kPrompts);
          const auto length = static_cast<std::int32_t>(1 + life.pick(kLongest));
          life.send(make_request(id, prompt, length), prompt);
          break;
        }
        default: life.step();
      }
    }
    life.finish();
    ASSERT_NO_FATAL_FAILURE(life.check(expected_));
    // A slot keeps its content until its next load.
    EXPECT_LE(life.alive_beyond_names(), static_cast<std::size_t>(few.adapters.slots));
    sent += life.num_sent();
    cancelled += life.num_cancelled();
    indices += life.num_indices();
    reused += life.num_reused();
  }
  std::printf("%zu requests, %zu of them cancelled, %zu indices, %zu loads of content that lived\n",
              sent, cancelled, indices, reused);
  EXPECT_GT(sent, 300U);
  EXPECT_GT(cancelled, 20U);
  EXPECT_GT(indices, 60U);
  EXPECT_GT(reused, 20U);
}

}  // namespace
}  // namespace sluice
