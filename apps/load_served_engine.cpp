#include "apps/load_served_engine.h"

#include <algorithm>
#include <utility>

#include "apps/local_engine.h"
#include "apps/open_snapshot.h"
#include "base/unix_time.h"

namespace sluice {
namespace {

// One tiny request, so that the first client pays for no graph capture and no cold weights. It has
// no block hashes and so leaves nothing in the prefix cache.
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

}  // namespace

Result<std::unique_ptr<Engine>> ServedEngine::load(const std::string& directory,
                                                   const std::string& name,
                                                   const EngineOptions& options, const Clock& clock,
                                                   StartupTimeline& timeline) {
  ASSIGN_OR_RETURN(snapshot_, open_snapshot(directory, options.snapshot, clock));
  timeline.mark("snapshot");
  ASSIGN_OR_RETURN(LocalEngine local,
                   load_local_engine(directory, options, clock, timeline, snapshot_, urgent_));
  pool_ = std::move(local.pool);
  device_ = std::move(local.device);
  LoadedEngine& loaded = local.loaded;
  cache_config_ = {loaded.block_size, loaded.kv_blocks, loaded.kv_identity.kv_dtype,
                   options.prefix_caching == PrefixCaching::kOn};
  ASSIGN_OR_RETURN(model_,
                   load_served_model(directory, name, unix_seconds(), facts_of(loaded), snapshot_));
  timeline.mark(span_name(model_->tokenizer_source));
  RETURN_IF_ERROR(warm_up(*loaded.engine, clock));
  timeline.mark("warm-up");
  return std::move(loaded.engine);
}

void ServedEngine::keep_snapshot() {
  snapshot_.collect();
  keeper_ = std::thread([this] { snapshot_.settle(); });
}

ServedEngine::~ServedEngine() {
  if (keeper_.joinable()) keeper_.join();
}

}  // namespace sluice
