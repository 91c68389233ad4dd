#include "engine/load_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "adapter/adapter_tensors.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "engine/kv_memory.h"
#include "engine/step_costs.h"
#include "model/dummy_weights.h"
#include "model/model_files.h"

namespace sluice {
namespace {

// Their logits take 64 rows of the vocabulary, as many as those of the default --max-num-seqs.
constexpr std::int32_t kMaxScored = 64;

Result<KvLayout> layout_for(const ModelConfig& config, const EngineOptions& options,
                            DType kv_dtype) {
  KvLayoutOptions layout;
  layout.block_size = options.block_size;
  layout.num_kv_heads = config.layers.front().num_kv_heads;
  layout.head_dim = config.layers.front().head_dim;
  layout.element_bytes = static_cast<std::int32_t>(size_of(kv_dtype));
  for (const LayerConfig& layer : config.layers) {
    // The pool has blocks of one size. No supported family mixes head shapes.
    if (layer.num_kv_heads != layout.num_kv_heads || layer.head_dim != layout.head_dim) {
      return unsupported("config.json: layers differ in KV heads or head_dim");
    }
    layout.layer_windows.push_back(layer.window);
  }
  return make_kv_layout(layout);
}

// `token_budget`: Policy::token_budget.
KvOptions kv_options(const KvLayout& layout, const EngineOptions& options, std::int32_t context,
                     std::int32_t token_budget, std::int32_t num_blocks) {
  KvOptions kv;
  kv.block_size = layout.block_size;
  for (const KvGroup& group : layout.groups) kv.group_windows.push_back(group.window);
  kv.num_blocks = num_blocks;
  kv.max_num_seqs = options.max_num_seqs;
  kv.max_model_len = context;
  kv.max_query_len = std::min(token_budget, context);
  kv.prefix_caching = options.prefix_caching;
  return kv;
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

Error too_little_memory(const Device& device, std::int64_t needed, const MemoryInfo& memory) {
  return resource_exhausted(fmt::format(
      "{}: weights, inputs, workspace and a little KV memory take {:.2f} GiB, {:.2f} GiB are free "
      "of {:.2f} GiB: {:.2f} GiB are missing; lower --max-num-seqs, --token-budget or "
      "--max-model-len, take a smaller --dtype, or stop what else uses the memory",
      device.traits().name, gib(needed), gib(memory.free_bytes), gib(memory.total_bytes),
      gib(needed - memory.free_bytes)));
}

// Bytes of KV memory: the option's value, or room_for_kv(), at most the need of all sequences.
Result<std::int64_t> choose_kv_bytes(const KvLayout& layout, const EngineOptions& options,
                                     const ModelRunnerOptions& runner, std::int64_t others,
                                     const Device& device) {
  const std::int32_t context = runner.max_model_len;
  const KvManager probe(kv_options(layout, options, context, runner.token_budget, 2));
  const std::int64_t per_seq = probe.blocks_needed(context) * layout.block_bytes;
  std::int64_t bytes = 0;
  const auto known = device.memory_info();
  if (options.kv_cache_memory) {
    bytes = *options.kv_cache_memory;
    if (known && bytes > known->free_bytes) {
      return resource_exhausted(fmt::format(
          "{}: --kv-cache-memory asks for {:.2f} GiB, {:.2f} GiB are free of {:.2f} GiB; lower it",
          device.traits().name, gib(bytes), gib(known->free_bytes), gib(known->total_bytes)));
    }
  } else {
    ASSIGN_OR_RETURN(const MemoryInfo memory, known);
    const std::int64_t useful = per_seq * options.max_num_seqs + layout.block_bytes;
    const std::int64_t needed = others + 4 * layout.block_bytes;
    if (memory.free_bytes < needed) return too_little_memory(device, needed, memory);
    const std::int64_t room = room_for_kv(memory, options.gpu_memory_share, others);
    if (options.gpu_memory_share && room < 4 * layout.block_bytes) {
      return resource_exhausted(fmt::format(
          "{}: --gpu-memory-utilization {} leaves no KV memory: {:.2f} GiB are free of {:.2f} GiB, "
          "and weights, inputs and workspace take {:.2f} GiB; raise it, or stop what else uses the "
          "memory",
          device.traits().name, *options.gpu_memory_share, gib(memory.free_bytes),
          gib(memory.total_bytes), gib(others)));
    }
    bytes = std::min(room, useful);
  }
  if (bytes < 2 * layout.block_bytes) {
    return resource_exhausted(
        fmt::format("KV memory of {} bytes holds no block of {} bytes; raise --kv-cache-memory",
                    bytes, layout.block_bytes));
  }
  const std::int64_t own = options.kv_cache_least.value_or(bytes);
  if (own < 2 * layout.block_bytes || own > bytes) {
    return invalid_argument(fmt::format(
        "--kv-cache-memory MIN-MAX: MIN of {} bytes must hold a block of {} bytes beside "
        "the null block, and be at most MAX of {} bytes",
        own, layout.block_bytes, bytes));
  }
  const bool streams = options.kv_disk && options.kv_disk->stream_bytes > 0;
  if (own < per_seq + layout.block_bytes && !streams) {
    log_warning(fmt::format(
        "KV memory of {} MiB holds fewer tokens than one context of {} needs ({} MiB): longer "
        "requests will be refused; raise --kv-cache-memory{} or lower --max-model-len",
        own >> 20, context, (per_seq >> 20) + 1,
        device.traits().host_accessible ? ", give --kv-disk DIR:SIZE,stream=SIZE" : ""));
  }
  return bytes;
}

// The needs of the adapters given at start, and of later ones.
struct SourceNeeds {
  std::int32_t rank = 1;  // the largest: of a mix, the sum of its parts
  bool gains = false;
};

Result<SourceNeeds> needs_of_sources(const AdapterSettings& settings, const ModelConfig& config) {
  bool gains = settings.at_run_time;
  std::map<std::string, std::int32_t, std::less<>> ranks;
  std::int32_t most = settings.at_run_time ? AdapterSettings::kDefaultRank : 1;
  for (const AdapterSettings::Source& source : settings.sources) {
    std::int32_t rank = 0;
    for (const MixPart& part : parse_mix(source.text)) {
      if (const auto found = ranks.find(part.name); found != ranks.end()) rank += found->second;
    }
    if (parse_mix(source.text).empty()) {
      auto tensors = AdapterTensors::open(source.text, config);
      if (!tensors) return with_context("adapter " + source.name, std::move(tensors).error());
      gains = gains || tensors->has_magnitudes();
      for (const LoraTensors& module : tensors->modules()) {
        rank = std::max(rank, module.lora.rank);
      }
    }
    ranks[source.name] = rank;
    most = std::max(most, rank);
  }
  return SourceNeeds{std::min(most, LoraTable::kMaxRank), gains};
}

// REQUIRES: loaded.adapters and loaded.num_adapters.
void use_adapters(const LoadedModel& loaded, std::int32_t slots, LoadPlan& plan) {
  plan.runner.adapters = loaded.adapters;
  plan.runner.adapter_slots = slots;
  plan.scheduler.adapters.num_slots = slots;
  plan.scheduler.adapters.num_adapters = loaded.num_adapters;
}

KvOptions kv_options_of(const LoadedModel& loaded, const LoadPlan& plan,
                        const EngineOptions& options, const DeviceTraits& traits) {
  KvOptions kv = kv_options(plan.layout, options, plan.runner.max_model_len,
                            plan.runner.token_budget, loaded.kv_blocks);
  kv.max_blocks = loaded.kv_blocks;
  kv.least_blocks = loaded.least_kv_blocks;
  kv.num_blocks = loaded.first_kv_blocks;
  if (options.kv_backing != KvBacking::kAtStart) {
    kv.chunk_blocks = KvMemory::chunk_blocks(traits, plan.layout.block_bytes);
  }
  return kv;
}

std::int64_t largest_depth(const ModelConfig& config) {
  std::int64_t depth = config.hidden_size;
  for (const LayerConfig& layer : config.layers) {
    depth = std::max<std::int64_t>({depth, layer.intermediate_size, layer.q_width()});
  }
  return depth;
}

// Weights that are stored in blocks stay as they are.
Status check_blocks(DType blocks, const ModelConfig& config, const EngineOptions& options,
                    const DeviceTraits& traits) {
  const char* const name = dtype_name(blocks);
  if (options.dtype) {
    return unsupported(
        fmt::format("--dtype {}: the model's weights are stored in {} and are used as they are; "
                    "use --dtype auto, or a checkpoint in F32, F16 or BF16",
                    dtype_name(*options.dtype), name));
  }
  if (!traits.no_integers.empty()) {
    return unsupported(fmt::format(
        "the model's weights are stored in {}: {}; use --device cpu, or a checkpoint in F32, F16 "
        "or BF16",
        name, traits.no_integers));
  }
  const std::int64_t depth = largest_depth(config);
  if (depth <= MatmulParams::kMaxIntegerDepth) return {};
  return unsupported(fmt::format("a matrix in {} has {} columns; the limit is {}", name, depth,
                                 MatmulParams::kMaxIntegerDepth));
}

// Matrices that are stored in INT8 are used as they are, or expanded.
Status check_stored_int8(DType others, const ModelConfig& config, const EngineOptions& options,
                         const DeviceTraits& traits) {
  if (options.dtype && is_float(*options.dtype)) return {};
  if (options.dtype) {
    return unsupported(fmt::format(
        "--dtype {}: the checkpoint's weights are in INT8 and would be quantized twice; "
        "use --dtype auto, or a checkpoint in F32, F16 or BF16",
        dtype_name(*options.dtype)));
  }
  if (!traits.no_integers.empty()) {
    return unsupported(
        fmt::format("the checkpoint's weights are in INT8: {}; use --dtype {}, which expands them "
                    "and takes twice the memory, or --device cpu",
                    traits.no_integers, dtype_name(others)));
  }
  const std::int64_t depth = largest_depth(config);
  if (depth <= MatmulParams::kMaxIntegerDepth) return {};
  return unsupported(fmt::format("a matrix in INT8 has {} columns; the limit is {}; use --dtype {}",
                                 depth, MatmulParams::kMaxIntegerDepth, dtype_name(others)));
}

}  // namespace

std::int64_t room_for_kv(const MemoryInfo& memory, std::optional<double> share,
                         std::int64_t others) {
  if (!share) return (memory.free_bytes - others) / 2;
  const double kept_free = (1 - *share) * static_cast<double>(memory.total_bytes);
  return memory.free_bytes - static_cast<std::int64_t>(kept_free) - others;
}

std::int64_t kv_bytes_to_come(KvBacking backing, std::int32_t blocks, const KvLayout& layout) {
  return backing == KvBacking::kTouched ? 0 : blocks * layout.block_bytes;
}

Result<WeightFiles> find_weights(const std::string& directory, const ModelConfig& config,
                                 const EngineOptions& options, ThreadPool& pool,
                                 Repacking repacking) {
  if (options.load_format == LoadFormat::kDummy) {
    const bool named = options.dtype && is_float(*options.dtype);
    const DType dtype = named ? *options.dtype : config.dtype.value_or(DType::kBF16);
    Checkpoint none = Checkpoint::without_files(directory);
    ASSIGN_OR_RETURN(const Sha256Digest digest, model_digest(none));
    return WeightFiles{std::move(none), plan_dummy_weights(config, dtype), digest};
  }
  ASSIGN_OR_RETURN(Checkpoint checkpoint, open_checkpoint(directory));
  if (config.packing) {
    ASSIGN_OR_RETURN(checkpoint,
                     repack_checkpoint(std::move(checkpoint), *config.packing, pool, repacking));
  }
  ASSIGN_OR_RETURN(ModelWeightsPlan plan,
                   resolve_weights(config, checkpoint, 0, config.num_layers));
  ASSIGN_OR_RETURN(const Sha256Digest digest, model_digest(checkpoint));
  return WeightFiles{std::move(checkpoint), std::move(plan), digest};
}

Result<std::int32_t> choose_context(const ModelConfig& config, const EngineOptions& options) {
  const std::int32_t longest = config.max_position_embeddings;
  if (!options.max_model_len) return std::min(longest, kDefaultContext);
  if (*options.max_model_len <= longest) return *options.max_model_len;
  return invalid_argument(
      fmt::format("--max-model-len {} is beyond the model's context of {} tokens "
                  "(config.json: max_position_embeddings)",
                  *options.max_model_len, longest));
}

Status check_integers(const ModelWeightsPlan& sources, const ModelConfig& config,
                      const EngineOptions& options, const DeviceTraits& traits) {
  if (sources.blocks) return check_blocks(*sources.blocks, config, options, traits);
  if (sources.codes == DType::kI8) return check_stored_int8(sources.dtype, config, options, traits);
  if (options.dtype != DType::kI8 && options.dtype != DType::kI4) return {};
  const auto refuse = [&](const std::string& why, std::string_view use) {
    return unsupported(fmt::format("--dtype {}: {}; use {}", dtype_name(*options.dtype), why, use));
  };
  if (!traits.no_integers.empty()) {
    return refuse(traits.no_integers,
                  fmt::format("--dtype {} or fp8, or --device cpu", dtype_name(sources.dtype)));
  }
  if (sources.codes) {
    return refuse("the checkpoint's weights are in FP8 and would be quantized twice",
                  "--dtype auto, or a checkpoint in F32, F16 or BF16");
  }
  const std::int64_t depth = largest_depth(config);
  if (depth <= MatmulParams::kMaxIntegerDepth) return {};
  return refuse(fmt::format("config.json: a matrix has {} columns, and sums in 32 bits hold {}",
                            depth, MatmulParams::kMaxIntegerDepth),
                fmt::format("--dtype {} or fp8", dtype_name(sources.dtype)));
}

Status check_fp8(WeightDTypes dtypes, const EngineOptions& options, const DeviceTraits& traits) {
  if (dtypes.matrices != DType::kF8E4M3 || traits.no_fp8.empty()) return {};
  return unsupported(fmt::format(
      "{}: {}; use --dtype {}{}, or --device cpu",
      options.dtype ? "--dtype fp8" : "the checkpoint's weights are in FP8 (--dtype auto)",
      traits.no_fp8, dtype_name(dtypes.others),
      options.dtype ? "" : ", which expands them and takes twice the memory"));
}

std::string slow_dtype_warning(WeightDTypes dtypes, const EngineOptions& options,
                               const DeviceTraits& traits) {
  const bool slow = dtypes.matrices == DType::kF16 || dtypes.matrices == DType::kF32;
  if (!slow || !traits.fast_bf16 || options.dtype) return "";
  return fmt::format(
      "the weights are in {}: prompts run at half the speed of BF16 or less here; "
      "--dtype bf16 rounds them to BF16 while they are loaded",
      dtype_name(dtypes.matrices));
}

Result<LoadPlan> plan_load(const LoadedModel& loaded, const EngineOptions& options,
                           WeightDTypes dtypes, const DeviceTraits& traits) {
  LoadPlan plan;
  plan.dtypes = dtypes;
  RETURN_IF_ERROR(check_fp8(plan.dtypes, options, traits));
  ASSIGN_OR_RETURN(plan.layout, layout_for(loaded.config, options, plan.dtypes.others));
  ModelRunnerOptions& runner = plan.runner;
  ASSIGN_OR_RETURN(runner.max_model_len, choose_context(loaded.config, options));
  SchedulerOptions& scheduler = plan.scheduler;
  if (options.budget_mode == BudgetMode::kAuto ||
      (options.budget_mode == BudgetMode::kTime && !options.time_budget)) {
    return internal_error("the token budget was not chosen before the engine was loaded");
  }
  scheduler.token_budget = options.token_budget;
  scheduler.time_budget = options.time_budget;
  if (options.budget_mode == BudgetMode::kFollow) {
    scheduler.time_budget = budget_by_decodes(step_costs(loaded.config, plan.dtypes, plan.layout));
  }
  scheduler.max_num_seqs = options.max_num_seqs;
  scheduler.max_scored = kMaxScored;
  runner.max_scored = kMaxScored;
  scheduler.max_model_len = runner.max_model_len;
  scheduler.eos_ids = loaded.eos_ids;
  scheduler.kv_idle_release = options.kv_idle_release;
  if (options.decode_headroom) scheduler.decode_headroom = *options.decode_headroom;
  if (options.meeting_tokens) scheduler.meeting_tokens = *options.meeting_tokens;
  ASSIGN_OR_RETURN(plan.policy, make_policy(options.scheduler));
  runner.token_budget = plan.policy->token_budget(scheduler);
  runner.max_num_seqs = options.max_num_seqs;
  runner.table_width = (runner.max_model_len + options.block_size - 1) / options.block_size;
  runner.steps_in_flight = options.steps_in_flight;
  runner.graphs = options.graphs;
  runner.kv_dtype = plan.dtypes.others;
  runner.eos_ids = loaded.eos_ids;
  return plan;
}

Status plan_sealed_adapter(std::int32_t max_rank, const DeviceTraits& traits, LoadedModel& loaded,
                           LoadPlan& plan) {
  if (!traits.host_accessible) {
    return unsupported(fmt::format(
        "{}: an adapter in sealed memory lies in the host's memory, which this device does not "
        "compute on",
        traits.name));
  }
  if (max_rank > LoraTable::kMaxRank) {
    return invalid_argument(
        fmt::format("an adapter of rank {}; the limit is {}", max_rank, LoraTable::kMaxRank));
  }
  AdapterFormat format;
  format.dtype = traits.matmul_input_dtype(plan.dtypes.matrices, plan.dtypes.others);
  format.max_rank = max_rank;
  format.gains = true;
  // Shared as SharedAdapters says.
  loaded.adapters = std::make_shared<AdapterStore>(loaded.config, format, AdapterPlace::kSealed);
  loaded.num_adapters = 1;
  use_adapters(loaded, 1, plan);
  return {};
}

Status plan_adapters(const std::string& model, const EngineOptions& options,
                     const DeviceTraits& traits, LoadedModel& loaded, LoadPlan& plan) {
  const AdapterSettings& settings = options.adapters;
  if (!settings.any()) return {};
  AdapterFormat format;
  format.dtype = traits.matmul_input_dtype(plan.dtypes.matrices, plan.dtypes.others);
  ASSIGN_OR_RETURN(const SourceNeeds needs, needs_of_sources(settings, loaded.config));
  format.max_rank = settings.max_rank > 0 ? settings.max_rank : needs.rank;
  format.gains = needs.gains;
  // Shared as SharedAdapters says.
  loaded.adapters = std::make_shared<AdapterStore>(
      loaded.config, format, settings.sealed ? AdapterPlace::kSealed : AdapterPlace::kPrivate,
      options.load_format == LoadFormat::kDummy ? std::string() : model);
  for (const AdapterSettings::Source& source : settings.sources) {
    if (loaded.adapters->find(source.name) != nullptr) {
      return invalid_argument(
          fmt::format("--adapter {} is given twice; give each adapter its own name", source.name));
    }
    RETURN_IF_ERROR(loaded.adapters->load(source.name, source.text).map([](const auto&) {}));
  }
  loaded.num_adapters =
      settings.at_run_time ? AdapterStore::kMaxContents : loaded.adapters->num_contents();
  use_adapters(loaded,
               settings.slots > 0 ? settings.slots
                                  : std::min(loaded.num_adapters, AdapterSettings::kDefaultSlots),
               plan);
  return {};
}

Status plan_kv_memory(LoadPlan& plan, const EngineOptions& options, const Device& device,
                      LoadedModel& loaded) {
  ArenaPlan without_kv = plan.arena;
  without_kv.finish(device.traits().granularity);
  const auto others = static_cast<std::int64_t>(without_kv.total_bytes());
  ASSIGN_OR_RETURN(loaded.kv_bytes,
                   choose_kv_bytes(plan.layout, options, plan.runner, others, device));
  loaded.kv_blocks = static_cast<std::int32_t>(std::min<std::int64_t>(
      plan.layout.blocks_for_bytes(loaded.kv_bytes), std::numeric_limits<std::int32_t>::max() / 4));
  loaded.first_kv_blocks =
      options.kv_backing == KvBacking::kByNeed
          ? KvMemory::first_blocks(device.traits(), plan.layout.block_bytes, loaded.kv_blocks)
          : loaded.kv_blocks;
  loaded.kv_block_bytes = plan.layout.block_bytes;
  if (options.kv_cache_least) {
    loaded.least_kv_blocks = static_cast<std::int32_t>(std::min<std::int64_t>(
        plan.layout.blocks_for_bytes(*options.kv_cache_least), loaded.kv_blocks));
    loaded.first_kv_blocks = std::min(loaded.first_kv_blocks, loaded.least_kv_blocks);
  }
  plan.arena.add(RegionKind::kKv, "model/kv_blocks", static_cast<std::size_t>(loaded.kv_bytes));
  plan.arena.finish(device.traits().granularity);
  return {};
}

Status back_buffers(Arena& arena) {
  for (const RegionKind kind :
       {RegionKind::kAdapters, RegionKind::kInputs, RegionKind::kWorkspace}) {
    RETURN_IF_ERROR(arena.grow(kind, arena.plan().region(kind).reserved));
  }
  return {};
}

KvIdentity kv_identity(const Sha256Digest& digest, WeightDTypes dtypes, std::int32_t block_size) {
  KvIdentity identity;
  identity.model_digest = to_hex(digest);
  identity.weight_dtype = dtype_name(dtypes.matrices);
  identity.kv_dtype = dtype_name(dtypes.others);
  identity.block_size = block_size;
  return identity;
}

void finish_load(const EngineOptions& options, const DeviceTraits& traits,
                 const Sha256Digest& digest, LoadPlan plan, std::unique_ptr<ModelRunner> runner,
                 LoadedExecutor& loaded) {
  loaded.dtype = plan.dtypes.matrices;
  loaded.block_size = options.block_size;
  loaded.kv_identity = kv_identity(digest, plan.dtypes, options.block_size);
  loaded.kv = kv_options_of(loaded, plan, options, traits);
  loaded.scheduler = std::move(plan.scheduler);
  loaded.policy = std::move(plan.policy);
  loaded.meter = runner.get();
  loaded.contents = runner.get();
  loaded.logits = runner.get();
  loaded.trace = runner.get();
  loaded.executor = std::move(runner);
}

}  // namespace sluice
