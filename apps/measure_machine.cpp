#include "apps/measure_machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "apps/interrupt.h"
#include "base/file.h"
#include "engine/engine_loader.h"
#include "profile/step_runner.h"
#include "profile/token_budget.h"

namespace sluice {
namespace {

class ProgressLine {
 public:
  bool show(const ProfilerProgress& progress, Duration limit) {
    const Duration pause =
        terminal_ ? Duration(std::chrono::milliseconds(200)) : Duration(std::chrono::seconds(10));
    if (shown_ && progress.elapsed - last_ < pause) return !interrupted();
    shown_ = true;
    last_ = progress.elapsed;
    constexpr int kWidth = 20;
    const double part =
        std::clamp(std::max(to_milliseconds(progress.elapsed) / to_milliseconds(limit),
                            static_cast<double>(progress.runs) / std::max(1, progress.all_runs)),
                   0.0, 1.0);
    const std::string bar(static_cast<std::size_t>(part * kWidth), '#');
    fmt::print(stderr, "{}profiling [{:.<{}}] {:.0f} of at most {:.0f} s, {} of {} steps{}",
               terminal_ ? "\r" : "", bar, kWidth, to_seconds(progress.elapsed), to_seconds(limit),
               progress.measured, progress.points, terminal_ ? "  " : "\n");
    std::fflush(stderr);
    return !interrupted();
  }
  ~ProgressLine() {
    if (terminal_ && shown_) fmt::print(stderr, "\n");
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  Duration last_{0};
};

// Bytes for the reference load and one whole context, limited by the free memory.
Result<std::int64_t> choose_kv_bytes(const ModelConfig& config, const ModelIdentity& model,
                                     const EngineOptions& options, const Device& device,
                                     std::int64_t most) {
  if (options.kv_cache_memory) return *options.kv_cache_memory;
  const ReferenceLoad load = reference_load(options.max_num_seqs, model.max_model_len);
  const std::int64_t block = options.block_size;
  const std::int64_t tokens =
      load.decode_rows * (load.context + 2 * block) + model.max_model_len + 4 * block;
  ASSIGN_OR_RETURN(const MemoryInfo memory, device.memory_info());
  return std::min(
      {tokens * kv_bytes_per_token(config, model.kv_dtype), most, memory.free_bytes / 4});
}

// The largest attention window; 0 when a layer has none.
std::int32_t window_of(const ModelConfig& config) {
  std::int32_t window = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window == 0) return 0;
    window = std::max(window, layer.window);
  }
  return window;
}

}  // namespace

std::int64_t kv_bytes_per_token(const ModelConfig& config, DType dtype) {
  std::int64_t bytes = 0;
  for (const LayerConfig& layer : config.layers) {
    bytes += 2 * std::int64_t{layer.kv_width()} * static_cast<std::int64_t>(size_of(dtype));
  }
  return bytes;
}

ProfileIdentity profile_identity(const ModelIdentity& model, const Device& device,
                                 const ThreadPool& pool) {
  ProfileIdentity identity;
  identity.model_digest = model.digest;
  identity.dtype = dtype_name(model.dtype);
  identity.device = device.traits().name;
  identity.device_description = device.traits().description;
  identity.threads = pool.size();
  return identity;
}

Result<MachineProfile> measure_machine(const std::string& directory, const EngineOptions& options,
                                       Device& device, ThreadPool& pool, const Clock& clock,
                                       const MeasureOptions& measure, Snapshot* snapshot) {
  ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(directory));
  ASSIGN_OR_RETURN(const ModelIdentity model, identify_model(directory, options));
  EngineOptions roomy = options;
  roomy.budget_mode = BudgetMode::kTokens;
  roomy.time_budget.reset();
  roomy.scheduler = "stall-free";
  roomy.token_budget =
      std::max(std::min(measure.max_tokens, model.max_model_len), options.max_num_seqs);
  roomy.prefix_caching = PrefixCaching::kOff;
  roomy.kv_backing = KvBacking::kAtStart;
  ASSIGN_OR_RETURN(roomy.kv_cache_memory,
                   choose_kv_bytes(config, model, options, device, measure.max_kv_bytes));
  StartupTimeline timeline(clock);
  ASSIGN_OR_RETURN(LoadedExecutor loaded,
                   load_executor(directory, roomy, device, pool, timeline, snapshot));
  if (loaded.stream != nullptr) RETURN_IF_ERROR(loaded.stream->finish());
  if (snapshot != nullptr) snapshot->collect();  // what it offers refers to the executor

  const TimePoint start = clock.now();
  const StepLimits limits{loaded.kv, roomy.token_budget, config.vocab_size};
  StepRunner runner(limits, *loaded.executor, clock);
  RETURN_IF_ERROR(runner.fill_kv());
  ProgressLine line;
  const Duration limit = measure.profiler.time_limit;
  MachineProfile profile;
  ASSIGN_OR_RETURN(profile.points,
                   measure_points(runner, profile_grid(runner, limits), measure.profiler, clock,
                                  [&](const ProfilerProgress& p) { return line.show(p, limit); }));
  ASSIGN_OR_RETURN(const MemoryInfo memory, device.memory_info());
  profile.identity = profile_identity(model, device, pool);
  profile.model_name = directory_name(directory);
  profile.max_num_seqs = loaded.kv.max_num_seqs;
  profile.max_model_len = loaded.kv.max_model_len;
  for (const ProfilePoint& point : profile.points) {
    profile.max_tokens = std::max(profile.max_tokens, point.shape.tokens());
  }
  profile.seconds = to_seconds(clock.now() - start);
  profile.free_bytes = std::max<std::int64_t>(0, memory.free_bytes);
  profile.predictor.window = window_of(config);
  RETURN_IF_ERROR(fit_profile(profile));
  return profile;
}

}  // namespace sluice
