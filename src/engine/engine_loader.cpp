#include "engine/engine_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/digest.h"
#include "device/arena.h"
#include "engine/graph_snapshot.h"
#include "engine/kv_memory.h"
#include "engine/model_runner.h"
#include "engine/weight_snapshot.h"
#include "kv/kv_layout.h"
#include "model/dummy_weights.h"
#include "model/families.h"
#include "model/weights.h"

namespace sluice {
namespace {

// Their logits take 64 rows of the vocabulary, as many as those of the default --max-num-seqs.
constexpr std::int32_t kMaxScored = 64;

// Where a model's weights come from.
struct WeightFiles {
  Checkpoint checkpoint;
  ModelWeightsPlan plan;
  Sha256Digest digest{};
};

// With dummy weights the digest covers config.json alone, so it differs from every checkpoint's.
Result<WeightFiles> find_weights(const std::string& directory, const ModelConfig& config,
                                 const EngineOptions& options) {
  if (options.load_format == LoadFormat::kDummy) {
    const bool named = options.dtype && *options.dtype != DType::kF8E4M3;
    const DType dtype = named ? *options.dtype : config.dtype.value_or(DType::kBF16);
    Checkpoint none = Checkpoint::without_files(directory);
    ASSIGN_OR_RETURN(const Sha256Digest digest, model_digest(none));
    return WeightFiles{std::move(none), plan_dummy_weights(config, dtype), digest};
  }
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(directory));
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

// Bytes of KV memory: the option's value, or half of the memory that the rest leaves free, at most
// the need of all sequences. `others`: bytes that weights, inputs and workspace will take of the
// memory that is free now.
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
    bytes = std::min((memory.free_bytes - others) / 2, useful);
  }
  if (bytes < 2 * layout.block_bytes) {
    return resource_exhausted(
        fmt::format("KV memory of {} bytes holds no block of {} bytes; raise --kv-cache-memory",
                    bytes, layout.block_bytes));
  }
  if (bytes < per_seq + layout.block_bytes) {
    log_warning(fmt::format(
        "KV memory of {} MiB holds fewer tokens than one context of {} needs ({} MiB): longer "
        "requests will be refused; raise --kv-cache-memory or lower --max-model-len",
        bytes >> 20, context, (per_seq >> 20) + 1));
  }
  return bytes;
}

KvIdentity kv_identity(const Sha256Digest& digest, DType weights, DType kv,
                       std::int32_t block_size) {
  KvIdentity identity;
  identity.model_digest = to_hex(digest);
  identity.weight_dtype = dtype_name(weights);
  identity.kv_dtype = dtype_name(kv);
  identity.block_size = block_size;
  return identity;
}

Status check_fp8(WeightDTypes dtypes, const EngineOptions& options, const DeviceTraits& traits) {
  if (dtypes.matrices != DType::kF8E4M3 || traits.no_fp8.empty()) return {};
  return unsupported(fmt::format(
      "{}: {}; use --dtype {}{}, or --device cpu",
      options.dtype ? "--dtype fp8" : "the checkpoint's weights are in FP8 (--dtype auto)",
      traits.no_fp8, dtype_name(dtypes.others),
      options.dtype ? "" : ", which expands them and takes twice the memory"));
}

// Everything about a model's load that is decided before memory is touched.
struct LoadPlan {
  ModelRunnerOptions runner;
  KvLayout layout;
  WeightDTypes dtypes;
  ArenaPlan arena;
  SchedulerOptions scheduler;
  std::unique_ptr<Policy> policy;
};

Result<LoadPlan> plan_load(const LoadedModel& loaded, const EngineOptions& options,
                           const ModelWeightsPlan& sources, const DeviceTraits& traits) {
  LoadPlan plan;
  plan.dtypes = weight_dtypes(sources, options.dtype);
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
  scheduler.max_num_seqs = options.max_num_seqs;
  scheduler.max_scored = kMaxScored;
  runner.max_scored = kMaxScored;
  scheduler.max_model_len = runner.max_model_len;
  scheduler.eos_ids = loaded.eos_ids;
  scheduler.kv_idle_release = options.kv_idle_release;
  if (options.decode_headroom) scheduler.decode_headroom = *options.decode_headroom;
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

// Sizes KV memory by the memory that the other buffers leave free, reserves the range and backs
// inputs and workspace.
Result<Arena> make_arena(LoadPlan& plan, const EngineOptions& options, Device& device,
                         LoadedModel& loaded) {
  ArenaPlan without_kv = plan.arena;
  without_kv.finish(device.traits().granularity);
  const auto others = static_cast<std::int64_t>(without_kv.total_bytes());
  ASSIGN_OR_RETURN(loaded.kv_bytes,
                   choose_kv_bytes(plan.layout, options, plan.runner, others, device));
  loaded.kv_blocks = static_cast<std::int32_t>(std::min<std::int64_t>(
      plan.layout.blocks_for_bytes(loaded.kv_bytes), std::numeric_limits<std::int32_t>::max() / 4));
  loaded.first_kv_blocks =
      options.kv_backing == KvBacking::kAtStart
          ? loaded.kv_blocks
          : KvMemory::first_blocks(device.traits(), plan.layout.block_bytes, loaded.kv_blocks);
  plan.arena.add(RegionKind::kKv, "model/kv_blocks", static_cast<std::size_t>(loaded.kv_bytes));
  plan.arena.finish(device.traits().granularity);
  ASSIGN_OR_RETURN(Arena arena, Arena::create(device, std::move(plan.arena)));
  for (const RegionKind kind : {RegionKind::kInputs, RegionKind::kWorkspace}) {
    RETURN_IF_ERROR(arena.grow(kind, arena.plan().region(kind).reserved));
  }
  return arena;
}

GraphFacts graph_facts(const LoadPlan& plan, const EngineOptions& options,
                       const DeviceTraits& traits) {
  GraphFacts facts;
  facts.device = traits.description;
  facts.dtype = dtype_name(plan.dtypes.matrices);
  facts.other_dtype = dtype_name(plan.dtypes.others);
  facts.token_budget = plan.runner.token_budget;
  facts.max_num_seqs = plan.runner.max_num_seqs;
  facts.max_model_len = plan.runner.max_model_len;
  facts.block_size = options.block_size;
  return facts;
}

Result<WeightWatch> watch_weights(const WeightsLayout& weights, const Arena& arena) {
  WeightWatch watch;
  for (const WeightsLayout::MappedFilePlace& file : weights.mapped_files(arena)) {
    RETURN_IF_ERROR(watch.add(file.path, file.fd, file.data, file.bytes));
  }
  return watch;
}

template <class T>
// Shared: the loader uses the checkpoint and its layout, and so does a stream that has to convert
// weights again after the loader has returned.
using Shared = std::shared_ptr<const T>;

struct PlacedWeights {
  DecoderWeights weights;
  WeightWatch watch;
  std::unique_ptr<WeightStream> stream;  // null if the device maps no files
};

// `section`: of the snapshot, mapped or copied instead of converted weights.
Result<PlacedWeights> place_weights(const Shared<WeightFiles>& files,
                                    const Shared<WeightsLayout>& layout,
                                    const std::optional<UncheckedSection>& section, Arena& arena,
                                    Device& device, ThreadPool& pool, Snapshot* snapshot) {
  StoredWeights stored;
  if (section) {
    stored = {section->fd, section->offset,
              section->bytes.first(static_cast<std::size_t>(section->content_bytes))};
  }
  PlacedWeights placed;
  ASSIGN_OR_RETURN(placed.weights, layout->load(arena, device, pool, section ? &stored : nullptr));
  ASSIGN_OR_RETURN(placed.watch, watch_weights(*layout, arena));
  if (!device.traits().maps_files) return placed;
  StreamedSection streamed;
  if (section) {
    streamed.region_offset = layout->derived().offset;
    streamed.bytes = {arena.region_base(RegionKind::kWeights) + streamed.region_offset,
                      section->bytes.size()};
    streamed.pieces.assign(section->pieces.begin(), section->pieces.end());
    streamed.checked = [=] { snapshot->checked(kWeightsSection, *section); };
    streamed.remake = [=, &device, &pool, keep = files](Arena& in) {
      snapshot->damaged(kWeightsSection, *section);
      return layout->remake_derived(in, device, pool);
    };
    RETURN_IF_ERROR(
        placed.watch.add(section->path, section->fd, streamed.bytes.data(), streamed.bytes.size()));
  }
  placed.stream = std::make_unique<WeightStream>(layout->stages(arena), std::move(streamed), pool);
  return placed;
}

}  // namespace

Result<ModelIdentity> identify_model(const std::string& directory, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(directory));
  ASSIGN_OR_RETURN(const WeightFiles files, find_weights(directory, config, options));
  ASSIGN_OR_RETURN(const std::int32_t context, choose_context(config, options));
  const WeightDTypes dtypes = weight_dtypes(files.plan, options.dtype);
  return ModelIdentity{to_hex(files.digest), dtypes.matrices, dtypes.others, context};
}

Result<LoadedExecutor> load_executor(const std::string& directory, const EngineOptions& options,
                                     Device& device, ThreadPool& pool, StartupTimeline& timeline,
                                     Snapshot* snapshot) {
  LoadedExecutor loaded;
  ASSIGN_OR_RETURN(loaded.config, load_model_config(directory));
  ASSIGN_OR_RETURN(loaded.generation,
                   load_generation_defaults(directory, loaded.config.vocab_size));
  loaded.eos_ids = loaded.generation.eos_tokens.empty() ? loaded.config.eos_tokens
                                                        : loaded.generation.eos_tokens;
  timeline.mark("config");

  ASSIGN_OR_RETURN(WeightFiles found, find_weights(directory, loaded.config, options));
  const Shared<WeightFiles> files(new WeightFiles(std::move(found)));
  timeline.mark("open");

  if (files->plan.fp8) {
    log_info(
        "config.json: quantization_config: weights in FP8. Activations are not quantized, whatever "
        "it says of them");
  }
  ASSIGN_OR_RETURN(LoadPlan plan, plan_load(loaded, options, files->plan, device.traits()));
  const Shared<WeightsLayout> layout(new WeightsLayout(WeightsLayout::plan(
      files->checkpoint, files->plan, options.dtype, device.traits(), "model", plan.arena)));
  auto runner =
      std::make_unique<ModelRunner>(std::make_unique<ModelConfig>(loaded.config), plan.layout,
                                    plan.dtypes, plan.runner, device, pool, plan.arena);
  ASSIGN_OR_RETURN(Arena arena, make_arena(plan, options, device, loaded));
  timeline.mark("arena");
  if (options.load_format == LoadFormat::kDummy) {
    log_warning(fmt::format(
        "--load-format dummy: the weights are RANDOM ({} MiB of {}), whatever {} holds; what comes "
        "out means nothing",
        layout->copied_bytes() >> 20, dtype_name(plan.dtypes.matrices), directory));
  }

  Snapshot off;
  if (snapshot == nullptr) snapshot = &off;
  const auto section = find_weights_section(*layout, device.traits(), pool, *snapshot);
  ASSIGN_OR_RETURN(PlacedWeights placed,
                   place_weights(files, layout, section, arena, device, pool, snapshot));
  loaded.stream = placed.stream.get();
  RETURN_IF_ERROR(runner->start(std::move(arena), std::move(placed.weights),
                                std::move(placed.watch), {loaded.first_kv_blocks, loaded.kv_blocks},
                                std::move(placed.stream)));
  if (!section) offer_weights(*layout, runner->arena(), device, *snapshot);
  timeline.mark("map weights", section ? 0 : layout->copied_bytes());
  RETURN_IF_ERROR(make_graphs(*runner, graph_facts(plan, options, device.traits()), *snapshot));
  timeline.mark("graphs");

  loaded.dtype = plan.dtypes.matrices;
  loaded.block_size = options.block_size;
  loaded.kv_identity =
      kv_identity(files->digest, plan.dtypes.matrices, plan.dtypes.others, options.block_size);
  loaded.kv = kv_options(plan.layout, options, plan.runner.max_model_len, plan.runner.token_budget,
                         loaded.kv_blocks);
  loaded.kv.max_blocks = loaded.kv_blocks;
  loaded.kv.num_blocks = loaded.first_kv_blocks;
  if (options.kv_backing == KvBacking::kByNeed) {
    loaded.kv.chunk_blocks = KvMemory::chunk_blocks(device.traits(), plan.layout.block_bytes);
  }
  loaded.scheduler = std::move(plan.scheduler);
  loaded.policy = std::move(plan.policy);
  loaded.meter = runner.get();
  loaded.contents = runner.get();
  loaded.executor = std::move(runner);
  return loaded;
}

Result<LoadedEngine> load_engine(const std::string& directory, const EngineOptions& options,
                                 Device& device, ThreadPool& pool, const Clock& clock,
                                 StartupTimeline& timeline, Snapshot* snapshot) {
  ASSIGN_OR_RETURN(LoadedExecutor parts,
                   load_executor(directory, options, device, pool, timeline, snapshot));
  auto kv = std::make_unique<KvManager>(parts.kv);
  auto scheduler = std::make_unique<Scheduler>(parts.scheduler, *kv, std::move(parts.policy));
  const EngineLimits limits{parts.config.vocab_size, parts.scheduler.max_model_len, 0};
  LoadedEngine loaded;
  loaded.engine =
      std::make_unique<Engine>(limits, std::move(parts.executor), std::move(kv),
                               std::move(scheduler), clock, parts.meter, parts.contents);
  static_cast<LoadedModel&>(loaded) = std::move(parts);
  timeline.mark("engine");
  return loaded;
}

}  // namespace sluice
