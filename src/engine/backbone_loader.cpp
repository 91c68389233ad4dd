#include "engine/backbone_loader.h"

#include <memory>
#include <utility>
#include <vector>

#include "engine/load_plan.h"
#include "engine/weight_watch.h"
#include "model/generation_defaults.h"
#include "model/model_files.h"

namespace sluice {
namespace {

// An absent generation_config.json is an empty text.
Result<std::string> generation_text(const std::string& directory) {
  auto text = read_model_text(directory, "generation_config.json", ModelLimits::kConfigBytes);
  if (text || text.error().code != ErrorCode::kNotFound) return text;
  return std::string();
}

Result<LoadedExecutor> describe_model(const BackboneManifest& manifest) {
  LoadedExecutor loaded;
  ASSIGN_OR_RETURN(loaded.config, parse_model_config(manifest.config));
  if (loaded.config.layers.size() != manifest.num_layers ||
      loaded.config.ropes.size() != manifest.num_ropes) {
    return invalid_argument("backbone manifest: its layers differ from its config");
  }
  if (!manifest.generation.empty()) {
    ASSIGN_OR_RETURN(loaded.generation,
                     parse_generation_defaults(manifest.generation, loaded.config.vocab_size));
  }
  loaded.eos_ids = loaded.generation.eos_tokens.empty() ? loaded.config.eos_tokens
                                                        : loaded.generation.eos_tokens;
  return loaded;
}

Result<LoadedExecutor> load_executor_on_backbone(const Backbone& backbone, EngineOptions options,
                                                 Device& device, ThreadPool& pool,
                                                 StartupTimeline& timeline,
                                                 const BackboneUse& use) {
  ASSIGN_OR_RETURN(const BackboneManifest manifest, open_backbone(backbone));
  const DeviceTraits& traits = device.traits();
  if (manifest.numerics != traits.numerics) {
    return unsupported("the backbone was written for " + manifest.numerics + ", this device is " +
                       traits.numerics);
  }
  ASSIGN_OR_RETURN(LoadedExecutor loaded, describe_model(manifest));
  timeline.mark("manifest");
  if (use.verify) RETURN_IF_ERROR(verify_backbone(backbone, manifest, device));
  options.max_model_len = manifest.max_model_len;
  ASSIGN_OR_RETURN(LoadPlan plan, plan_load(loaded, options, manifest.dtypes, traits));
  if (use.lora_rank > 0) {
    RETURN_IF_ERROR(plan_sealed_adapter(use.lora_rank, traits, loaded, plan));
  } else {
    RETURN_IF_ERROR(plan_adapters(options.adapters.model, options, traits, loaded, plan));
  }
  plan.runner.has_rope_tables = false;
  plan_backbone(manifest, traits.granularity, plan.arena);
  auto runner =
      std::make_unique<ModelRunner>(std::make_unique<ModelConfig>(loaded.config), plan.layout,
                                    plan.dtypes, plan.runner, device, pool, plan.arena);
  RETURN_IF_ERROR(plan_kv_memory(plan, options, device, loaded));
  ASSIGN_OR_RETURN(Arena arena, reserve_backbone(manifest, use.address, device, plan.arena));
  RETURN_IF_ERROR(back_buffers(arena));
  ASSIGN_OR_RETURN(DecoderWeights weights, map_backbone(backbone, manifest, arena));
  if (use.touch) RETURN_IF_ERROR(touch_backbone(manifest, arena));
  timeline.mark("arena");
  RETURN_IF_ERROR(runner->start(std::move(arena), std::move(weights), WeightWatch{},
                                {loaded.first_kv_blocks, loaded.kv_blocks}));
  RETURN_IF_ERROR(runner->capture_graphs());
  timeline.mark("graphs");
  finish_load(options, traits, manifest.model, std::move(plan), std::move(runner), loaded);
  return loaded;
}

Error cannot_hold(const std::string& directory, DType dtype) {
  return unsupported(directory + ": its weights are stored in " + dtype_name(dtype) +
                     ", which a backbone cannot hold yet; use a checkpoint in F32, F16 or BF16");
}

}  // namespace

Result<Backbone> make_backbone(const std::string& directory, const EngineOptions& options,
                               Device& device, ThreadPool& pool) {
  ASSIGN_OR_RETURN(std::string config_text,
                   read_model_text(directory, "config.json", ModelLimits::kConfigBytes));
  ASSIGN_OR_RETURN(const ModelConfig config, parse_model_config(config_text));
  ASSIGN_OR_RETURN(std::string generation, generation_text(directory));
  ASSIGN_OR_RETURN(const WeightFiles files,
                   find_weights(directory, config, options, pool, Repacking::kNamesOnly));
  if (files.plan.blocks) return cannot_hold(directory, *files.plan.blocks);
  RETURN_IF_ERROR(check_integers(files.plan, config, options, device.traits()));
  RETURN_IF_ERROR(check_fp8(weight_dtypes(files.plan, options.dtype), options, device.traits()));
  ASSIGN_OR_RETURN(const std::int32_t context, choose_context(config, options));
  return write_backbone({config, files.checkpoint, files.plan, options.dtype, context, files.digest,
                         std::move(config_text), std::move(generation)},
                        device, pool);
}

Result<LoadedEngine> load_engine_on_backbone(const Backbone& backbone, const EngineOptions& options,
                                             Device& device, ThreadPool& pool, const Clock& clock,
                                             StartupTimeline& timeline, const BackboneUse& use) {
  ASSIGN_OR_RETURN(LoadedExecutor parts,
                   load_executor_on_backbone(backbone, options, device, pool, timeline, use));
  return make_engine(std::move(parts), clock, timeline);
}

}  // namespace sluice
