#include "engine/engine_loader.h"

#include <sys/random.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/arena.h"
#include "engine/graph_snapshot.h"
#include "engine/load_plan.h"
#include "engine/model_runner.h"
#include "engine/rope_snapshot.h"
#include "engine/weight_pages.h"
#include "engine/weight_snapshot.h"
#include "model/weights.h"

namespace sluice {
namespace {

// Reserves the range and backs inputs and workspace.
Result<Arena> make_arena(LoadPlan& plan, GraphSnapshot& graphs, Device& device) {
  ASSIGN_OR_RETURN(Arena arena, graphs.reserve(device, std::move(plan.arena)));
  RETURN_IF_ERROR(back_buffers(arena));
  return arena;
}

GraphFacts graph_facts(const LoadPlan& plan, const EngineOptions& options,
                       const DeviceTraits& traits) {
  GraphFacts facts;
  facts.device = traits.numerics;
  facts.dtype = dtype_name(plan.dtypes.matrices);
  facts.other_dtype = dtype_name(plan.dtypes.others);
  facts.token_budget = plan.runner.token_budget;
  facts.max_num_seqs = plan.runner.max_num_seqs;
  facts.max_model_len = plan.runner.max_model_len;
  facts.block_size = options.block_size;
  return facts;
}

// The context at which attention costs a token as many operations as the layers' matrices: 2 for
// each element of a matrix, 4 for each position and column of the queries.
double even_context(const ModelConfig& config) {
  double elements = 0;
  double columns = 0;
  for (const LayerConfig& layer : config.layers) {
    elements += config.hidden_size *
                (2.0 * layer.q_width() + 2.0 * layer.kv_width() + 3.0 * layer.intermediate_size);
    columns += layer.q_width();
  }
  return elements / (2 * columns);
}

// 0: some layer sees all positions.
std::int32_t widest_window(const ModelConfig& config) {
  std::int32_t widest = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window == 0) return 0;
    widest = std::max(widest, layer.window);
  }
  return widest;
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
  bool converted_later = false;          // by the stream
};

// 4 MiB of BF16: as much as the stream asks a disk for at once when it converts nothing.
constexpr std::size_t kPieceElements = std::size_t{1} << 21;

// Conversions that the stream makes. The checkpoint's files are watched until they are over.
Result<StreamedConversion> stream_conversions(std::vector<DerivedPiece> pieces,
                                              const Shared<WeightFiles>& files,
                                              const Shared<WeightsLayout>& layout) {
  StreamedConversion conversion;
  conversion.pieces = std::move(pieces);
  conversion.convert = [keep = files, layout](const DerivedPiece& piece, const Arena& arena) {
    return layout->convert(piece, arena);
  };
  const auto watch = std::make_shared<WeightWatch>();  // shared as functions are copied
  for (const CheckpointFile& file : files->checkpoint.files()) {
    RETURN_IF_ERROR(watch->add(file.path(), file.fd(), nullptr, 0));
  }
  const TimePoint begin = SystemClock().now();
  conversion.finish = [=](Arena& arena) -> Status {
    const TimePoint now = SystemClock().now();
    RETURN_IF_ERROR(watch->check_files_now(now));
    log_info(fmt::format("weights: {} MiB are converted, {:.1f} s after the first of them",
                         layout->derived().bytes >> 20, to_seconds(now - begin)));
    return arena.protect(RegionKind::kWeights, Protection::kReadOnly);
  };
  return conversion;
}

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
  std::vector<DerivedPiece> pieces;  // to be converted by the stream
  if (!section && device.traits().maps_files) pieces = layout->pieces(kPieceElements);
  const bool later = !pieces.empty();
  ASSIGN_OR_RETURN(placed.weights, layout->load(arena, device, pool, section ? &stored : nullptr,
                                                later ? Conversion::kLater : Conversion::kNow));
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
  StreamedConversion conversion;
  if (later) {
    ASSIGN_OR_RETURN(conversion, stream_conversions(std::move(pieces), files, layout));
    placed.converted_later = true;
  }
  placed.stream = std::make_unique<WeightStream>(layout->stages(arena), std::move(streamed),
                                                 std::move(conversion), pool);
  return placed;
}

// `section`: mapped, too. `kv_bytes`: that KV memory may take later.
std::unique_ptr<WeightPages> large_pages_for(const WeightsLayout& layout,
                                             const std::optional<UncheckedSection>& section,
                                             const Arena& arena, std::int64_t kv_bytes,
                                             const Device& device, ThreadPool& pool) {
  WeightPages::Options options;
  for (const WeightsLayout::MappedFilePlace& file : layout.mapped_files(arena)) {
    options.mappings.emplace_back(file.data, file.bytes);
  }
  if (section) {
    options.mappings.emplace_back(arena.region_base(RegionKind::kWeights) + layout.derived().offset,
                                  section->bytes.size());
  }
  options.others = kv_bytes;
  options.free_bytes = [&device]() -> std::optional<std::int64_t> {
    const auto info = device.memory_info();
    if (!info) return std::nullopt;
    return info->free_bytes;
  };
  return std::make_unique<WeightPages>(std::move(options), pool);
}

void warn_of_slow_weights(const std::string& model, WeightDTypes dtypes,
                          const EngineOptions& options, const DeviceTraits& traits) {
  const std::string slow = slow_dtype_warning(dtypes, options, traits);
  if (!slow.empty()) log_warning(fmt::format("{}: {}", model, slow));
}

void warn_of_dummy_weights(const WeightsLayout& layout, WeightDTypes dtypes,
                           const std::string& directory) {
  log_warning(fmt::format(
      "--load-format dummy: the weights are RANDOM ({} MiB of {}), whatever {} holds; what comes "
      "out means nothing",
      layout.copied_bytes() >> 20, dtype_name(dtypes.matrices), directory));
}

}  // namespace

Result<ModelIdentity> identify_model(const std::string& directory, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(directory));
  ThreadPool this_thread(1);
  ASSIGN_OR_RETURN(const WeightFiles files,
                   find_weights(directory, config, options, this_thread, Repacking::kNamesOnly));
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

  ASSIGN_OR_RETURN(WeightFiles found, find_weights(directory, loaded.config, options, pool));
  const Shared<WeightFiles> files(new WeightFiles(std::move(found)));
  timeline.mark("open");

  if (files->plan.codes == DType::kF8E4M3) {
    log_info(
        "config.json: quantization_config: weights in FP8. Activations are not quantized, whatever "
        "it says of them");
  }
  RETURN_IF_ERROR(check_integers(files->plan, loaded.config, options, device.traits()));
  ASSIGN_OR_RETURN(
      LoadPlan plan,
      plan_load(loaded, options, weight_dtypes(files->plan, options.dtype), device.traits()));
  warn_of_slow_weights(directory, plan.dtypes, options, device.traits());
  RETURN_IF_ERROR(plan_adapters(directory, options, device.traits(), loaded, plan));
  if (loaded.adapters) timeline.mark("adapters");
  const Shared<WeightsLayout> layout(new WeightsLayout(WeightsLayout::plan(
      files->checkpoint, files->plan, options.dtype, device.traits(), "model", plan.arena)));
  auto runner =
      std::make_unique<ModelRunner>(std::make_unique<ModelConfig>(loaded.config), plan.layout,
                                    plan.dtypes, plan.runner, device, pool, plan.arena);
  RETURN_IF_ERROR(plan_kv_memory(plan, options, device, loaded));
  Snapshot off;
  if (snapshot == nullptr) snapshot = &off;
  GraphSnapshot graphs(graph_facts(plan, options, device.traits()), plan.arena, options.graphs,
                       *snapshot);
  ASSIGN_OR_RETURN(Arena arena, make_arena(plan, graphs, device));
  timeline.mark("arena");
  if (options.load_format == LoadFormat::kDummy) {
    warn_of_dummy_weights(*layout, plan.dtypes, directory);
  }
  const auto section = find_weights_section(*layout, device.traits(), pool, *snapshot);
  ASSIGN_OR_RETURN(PlacedWeights placed,
                   place_weights(files, layout, section, arena, device, pool, snapshot));
  loaded.stream = placed.stream.get();
  const bool copied_now = !section && !placed.converted_later;
  const std::vector<float> rope = make_rope_tables(
      runner->decoder(), {device.traits().numerics, plan.runner.max_model_len}, *snapshot);
  RETURN_IF_ERROR(runner->start(std::move(arena), std::move(placed.weights),
                                std::move(placed.watch), {loaded.first_kv_blocks, loaded.kv_blocks},
                                std::move(placed.stream), rope));
  if (options.large_pages && device.traits().maps_files) {
    loaded.large_pages = runner->use_large_pages(large_pages_for(
        *layout, section, runner->arena(),
        kv_bytes_to_come(options.kv_backing, loaded.kv_blocks, plan.layout), device, pool));
  }
  if (!section) offer_weights(*layout, runner->arena(), device, *snapshot);
  timeline.mark("map weights", copied_now ? layout->copied_bytes() : 0);
  RETURN_IF_ERROR(graphs.make_graphs(*runner));
  timeline.mark("graphs");
  if (options.kv_backing == KvBacking::kTouched) {
    RETURN_IF_ERROR(runner->touch_kv_memory());
    timeline.mark("touch KV memory");
  }

  finish_load(options, device.traits(), files->digest, std::move(plan), std::move(runner), loaded);
  return loaded;
}

Result<LoadedEngine> load_engine(const std::string& directory, const EngineOptions& options,
                                 Device& device, ThreadPool& pool, const Clock& clock,
                                 StartupTimeline& timeline, Snapshot* snapshot) {
  ASSIGN_OR_RETURN(LoadedExecutor parts,
                   load_executor(directory, options, device, pool, timeline, snapshot));
  return make_engine(std::move(parts), clock, timeline);
}

Status add_tier(std::unique_ptr<KvTier> tier, TierEviction eviction, LoadedExecutor& loaded) {
  if (loaded.kv.prefix_caching == PrefixCaching::kOff) {
    return invalid_argument("a KV tier finds blocks by name, so the prefix cache must be on");
  }
  std::vector<TierPage> stored = tier->take_stored();
  const std::int32_t pages = tier->num_pages();
  RETURN_IF_ERROR(loaded.contents->use_tier(std::move(tier)));
  loaded.kv.tier_pages = pages;
  loaded.kv.tier_eviction = {.by = eviction,
                             .even_depth = even_context(loaded.config) / loaded.kv.block_size,
                             .window = widest_window(loaded.config) / loaded.kv.block_size};
  Hash128& root = loaded.scheduler.private_root;
  CHECK(getrandom(&root, sizeof root, 0) == sizeof root);
  loaded.stored = std::move(stored);
  return {};
}

Status add_stream(const KvStream::Options& options, LoadedExecutor& loaded) {
  ASSIGN_OR_RETURN(loaded.scheduler.stream, loaded.contents->use_stream(options));
  return {};
}

LoadedEngine make_engine(LoadedExecutor parts, const Clock& clock, StartupTimeline& timeline) {
  auto kv = std::make_unique<KvManager>(parts.kv);
  for (const TierPage& page : parts.stored) kv->restore_page(page.page, page.name, page.group);
  auto scheduler = std::make_unique<Scheduler>(parts.scheduler, *kv, std::move(parts.policy));
  const EngineLimits limits{parts.config.vocab_size, parts.scheduler.max_model_len,
                            parts.num_adapters, parts.config.hidden_size};
  LoadedEngine loaded;
  loaded.engine =
      std::make_unique<Engine>(limits, std::move(parts.executor), std::move(kv),
                               std::move(scheduler), clock, parts.meter, parts.contents);
  static_cast<LoadedModel&>(loaded) = std::move(parts);
  timeline.mark("engine");
  return loaded;
}

}  // namespace sluice
