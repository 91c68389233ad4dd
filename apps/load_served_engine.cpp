#include "apps/load_served_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/beside.h"
#include "apps/canary.h"
#include "apps/local_engine.h"
#include "apps/open_snapshot.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "front/tool_detection.h"

namespace sluice {
namespace {

// Leaves room for tokenizers and graphs in what --snapshot auto keeps.
constexpr std::uint64_t kMaxAutoWarmBytes = std::uint64_t{48} << 20;

// How often an idle server with warm prompts looks at the clock.
constexpr Duration kClockInterval = std::chrono::minutes(1);

// One tiny request, so that the first client does not pay for the first launch of each kernel. On
// the CPU there is nothing of the kind: graphs are captured, and weights are read meanwhile, which
// a client's own request waits for layer by layer. The request has no block hashes and so leaves
// nothing in the prefix cache.
Status warm_up(Engine& engine, const Clock& clock) {
  constexpr std::int32_t kTokens = 2;
  Request request;
  request.id = 0;  // clients' ids begin at 1
  request.prompt.assign(
      static_cast<std::size_t>(std::clamp(engine.limits().max_model_len - kTokens, 1, 4)),
      TokenId{0});
  request.arrival = clock.now();
  request.sampling.max_tokens = kTokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  RETURN_IF_ERROR(engine.add_request(std::move(request)));
  while (engine.has_work()) {
    auto outputs = engine.step();
    if (!outputs) return with_context("first step", std::move(outputs).error());
  }
  return {};
}

void choose_tool_format(const std::string& parser, ServedModel& model) {
  if (parser != "auto") {
    model.tool_format = find_tool_format(parser);  // nullptr for "none"
    return;
  }
  if (!model.templates) return;
  model.tool_format = detect_tool_format(*model.templates);
  const auto with_tools = model.templates->choose(ToolsGiven::kYes);
  if (model.tool_format != nullptr) {
    log_info(
        fmt::format("tool calls are read as {} (--tool-call-parser)", model.tool_format->name));
  } else if (with_tools && (*with_tools)->reads_tools()) {
    log_warning(
        "the chat template shows tools, but its format of tool calls is not known: calls stay part "
        "of the answer's text; name the format with --tool-call-parser");
  }
}

}  // namespace

void set_answer_formats(const AnswerParsers& parsers, ServedModel& model) {
  choose_tool_format(parsers.tool_calls, model);
  model.reasoning_format = find_reasoning_format(parsers.reasoning);  // nullptr for "none"
}

Result<std::unique_ptr<Engine>> ServedEngine::load(const std::string& directory,
                                                   const std::string& name,
                                                   const EngineOptions& options, const Clock& clock,
                                                   StartupTimeline& timeline,
                                                   const ServedEngineOptions& served) {
  clock_ = &clock;
  ASSIGN_OR_RETURN(snapshot_, open_snapshot(directory, options, clock));
  timeline.mark("snapshot");
  Beside<Result<ServedText>> text_phase(
      clock, [&] { return load_served_text(directory, snapshot_, served.chat_template); });
  ASSIGN_OR_RETURN(LocalEngine local,
                   load_local_engine(directory, options, clock, timeline, snapshot_, urgent_));
  pool_ = std::move(local.pool);
  warm_facts_ = warm_facts(directory, options, local);
  device_ = std::move(local.device);
  stream_ = local.loaded.stream;
  logits_ = local.loaded.logits;
  LoadedEngine& loaded = local.loaded;
  engine_ = loaded.engine.get();
  kv_block_bytes_ = loaded.kv_block_bytes;
  if (loaded.least_kv_blocks > 0) engine_->set_kv_limit(loaded.least_kv_blocks);
  cache_config_ = {loaded.block_size, loaded.kv_blocks, loaded.kv_identity.kv_dtype,
                   options.prefix_caching == PrefixCaching::kOn};
  ASSIGN_OR_RETURN(ServedText text, text_phase.join(timeline, [](const auto& result) {
    return span_name(result ? result->tokenizer.source : TokenizerSource::kFiles);
  }));
  model_ = make_served_model(std::move(text), name, unix_seconds(), facts_of(loaded));
  set_answer_formats(served.parsers, *model_);
  model_->local_time = served.local_time;
  timeline.mark("wait for tokenizer");
  if (device_->traits().asynchronous) {
    RETURN_IF_ERROR(warm_up(*loaded.engine, clock));
    timeline.mark("warm-up");
  }
  warm_limit_ = served.warm.limit;
  rendered_ = std::chrono::floor<std::chrono::hours>(model_->local_time());
  ASSIGN_OR_RETURN(warm_, start_warm(served.warm, warm_facts_, *engine_, *model_, snapshot_));
  warm_restored_ = warm_.num_ready(*engine_) == warm_.size();
  if (!warm_.empty()) timeline.mark("warm prompts");
  if (served.canary == CanaryTime::kBeforeReady) {
    RETURN_IF_ERROR(compare_canary());
    timeline.mark("canary");
  }
  // Weights that turned out to be wrong meanwhile: the start fails, instead of the first step.
  if (stream_ != nullptr) RETURN_IF_ERROR(stream_->poll());
  return std::move(loaded.engine);
}

Status ServedEngine::compare_canary() {
  canary_checked_ = true;
  return check_canary(*engine_, *logits_, *clock_, warm_facts_, snapshot_);
}

void ServedEngine::render_at_a_new_hour() {
  const auto hour = std::chrono::floor<std::chrono::hours>(model_->local_time());
  if (warm_.empty() || hour == rendered_) return;
  rendered_ = hour;
  if (!warm_.refresh(*model_)) return;
  model_->warm_names->set(warm_.names());
  warm_.hold(*engine_, warm_limit_);
  warm_complete_ = false;
  warm_restored_ = false;
}

Result<ThreadedEngineLoop::IdleWork> ServedEngine::when_idle() {
  if (!canary_checked_) RETURN_IF_ERROR(compare_canary());
  render_at_a_new_hour();
  if (auto request = warm_.next_missing(*engine_, *model_, next_own_++, clock_->now())) {
    return ThreadedEngineLoop::IdleWork{std::move(request)};
  }
  if (!warm_complete_) tell_warm();
  warm_complete_ = true;
  if (!kept_) keep_snapshot();
  kept_ = true;
  if (warm_.empty()) return ThreadedEngineLoop::IdleWork{};
  return ThreadedEngineLoop::IdleWork{std::nullopt, kClockInterval};
}

void ServedEngine::tell_warm() const {
  if (warm_restored_ || warm_.empty()) return;
  log_info(fmt::format("warm prompts: {} of {} in memory, {} tokens in all",
                       warm_.num_ready(*engine_), warm_.size(), warm_.num_tokens()));
}

// Empty when there is nothing new to keep, or it is too large for the cache folder.
std::vector<std::byte> ServedEngine::warm_image() {
  if (snapshot_.mode() != SnapshotMode::kAuto || warm_.empty() || warm_restored_) return {};
  if (warm_.image_bytes(*engine_) > kMaxAutoWarmBytes) {
    log_info(fmt::format(
        "warm prompts: {} MiB are more than --snapshot auto keeps ({} MiB); the next start "
        "computes them again, unless a file of `sluice snapshot save --warm` has them",
        warm_.image_bytes(*engine_) >> 20, kMaxAutoWarmBytes >> 20));
    return {};
  }
  auto image = warm_.encode(*engine_, model_->block_size);
  if (image) return *std::move(image);
  log_warning(fmt::format("warm prompts are not kept: {}", image.error().message));
  return {};
}

void ServedEngine::keep_snapshot() {
  // The keeper may touch the snapshot only when the engine does not.
  if (stream_ != nullptr) static_cast<void>(stream_->finish());  // a step tells the error
  snapshot_.collect();
  keeper_ = std::thread([this, image = warm_image()]() mutable {
    // The key takes a digest of all weights, which the engine's thread must not wait for.
    if (!image.empty()) {
      if (auto key = warm_key(warm_facts_, snapshot_.model())) {
        snapshot_.offer(kWarmPromptsSection, *std::move(key), [&image] { return image; });
        snapshot_.collect();
      } else {
        log_warning(fmt::format("warm prompts are not kept: {}", key.error().message));
      }
    }
    snapshot_.settle();
  });
}

ServedEngine::~ServedEngine() {
  if (keeper_.joinable()) keeper_.join();
}

}  // namespace sluice
