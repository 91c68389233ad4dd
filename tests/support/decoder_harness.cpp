#include "tests/support/decoder_harness.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "device/cpu/cpu_device.h"
#include "model/families.h"
#include "model/model_files.h"
#include "model/packed_checkpoint.h"

namespace sluice::test {
namespace {

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

void must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

KvLayout layout_of(const ModelConfig& config, const HarnessOptions& options, DType dtype) {
  KvLayoutOptions layout;
  layout.block_size = options.block_size;
  layout.num_kv_heads = config.layers.front().num_kv_heads;
  layout.head_dim = config.layers.front().head_dim;
  layout.element_bytes = static_cast<std::int32_t>(size_of(dtype));
  for (const LayerConfig& layer : config.layers) layout.layer_windows.push_back(layer.window);
  return must(make_kv_layout(layout));
}

}  // namespace

DecoderHarness::DecoderHarness(const std::string& directory, const HarnessOptions& options)
    : options_(options),
      pool_(options.threads),
      device_(must(make_cpu_device({&pool_, 0, options.isa}))) {
  config_ = must(load_model_config(directory));
  Checkpoint checkpoint = must(open_checkpoint(directory));
  if (config_.packing) {
    checkpoint =
        must(repack_checkpoint(std::move(checkpoint), *config_.packing, pool_, Repacking::kFull));
  }
  const std::int32_t last = options.last_layer.value_or(config_.num_layers);
  const ModelWeightsPlan sources =
      must(resolve_weights(config_, checkpoint, options.first_layer, last));
  const WeightDTypes weight_types = weight_dtypes(sources, options.dtype);
  const DType dtype = weight_types.others;
  layout_ = layout_of(config_, options, dtype);
  table_width_ = (options.context + options.block_size - 1) / options.block_size;

  ArenaPlan plan;
  const WeightsLayout weights_layout =
      WeightsLayout::plan(checkpoint, sources, options.dtype, device_->traits(), "model", plan);
  const StepCapacity capacity{options.max_tokens, options.max_slots, options.max_tokens};
  Decoder::Options decoder;
  decoder.first_layer = options.first_layer;
  decoder.last_layer = last;
  decoder.capacity = capacity;
  decoder.max_positions = options.context;
  decoder_ = std::make_unique<Decoder>(config_, decoder, weight_types, device_->traits(), plan);
  BatchInputsOptions inputs;
  inputs.capacity = capacity;
  inputs.max_slots = options.max_slots;
  inputs.table_width = table_width_;
  inputs.block_size = options.block_size;
  for (const KvGroup& group : layout_.groups) {
    const LayerConfig& layer = config_.layers[static_cast<std::size_t>(group.layers.front())];
    inputs.groups.push_back({layer.num_heads, layer.num_kv_heads, layer.head_dim, group.window});
  }
  inputs_ = std::make_unique<BatchInputs>(inputs, device_->ops(), plan);
  graphs_ = std::make_unique<GraphCache>(options.graphs, capacity);
  const std::size_t library_bytes = device_->traits().library_workspace;
  if (library_bytes > 0) plan.add(RegionKind::kWorkspace, "library_workspace", library_bytes, 256);

  // Every slot and group has its own blocks after the null block.
  const auto groups = static_cast<std::int64_t>(layout_.groups.size());
  const std::int64_t blocks = 1 + groups * options.max_slots * table_width_;
  plan.add(RegionKind::kKv, "model/kv_blocks",
           static_cast<std::size_t>(blocks * layout_.block_bytes));
  plan.finish(device_->traits().granularity);
  arena_ = std::make_unique<Arena>(must(Arena::create(*device_, std::move(plan))));
  for (const RegionKind kind : {RegionKind::kInputs, RegionKind::kWorkspace, RegionKind::kKv}) {
    must(arena_->grow(kind, arena_->plan().region(kind).reserved));
  }
  if (library_bytes > 0) {
    device_->ops().set_library_workspace(
        arena_->address(RegionKind::kWorkspace, "library_workspace"));
  }
  DecoderWeights weights = must(weights_layout.load(*arena_, *device_, pool_));
  must(inputs_->bind(*arena_, *device_));
  DecoderInputs decoder_inputs = inputs_->decoder_inputs();
  std::byte* kv_base = arena_->region_base(RegionKind::kKv);
  for (std::int32_t i = options.first_layer; i < last; ++i) {
    const KvLayerPlace& place = layout_.layers[static_cast<std::size_t>(i)];
    KvLayerView view{kv_base + place.k_offset, kv_base + place.v_offset, dtype,
                     layout_.block_size,       layout_.block_stride,     layout_.head_stride,
                     layout_.token_stride};
    decoder_inputs.layers.push_back({view, place.group});
  }
  must(decoder_->bind(*arena_, *device_, std::move(weights), std::move(decoder_inputs)));
}

std::vector<std::vector<float>> DecoderHarness::run(const std::vector<HarnessRow>& rows,
                                                    const Graph* graph) {
  BatchPlan plan;
  const auto groups = static_cast<std::int32_t>(layout_.groups.size());
  for (const HarnessRow& row : rows) {
    PlanRow planned;
    planned.slot = row.slot;
    planned.context_len = row.context_len;
    planned.query_len = static_cast<std::int32_t>(row.tokens.size());
    planned.first_token = static_cast<std::int32_t>(plan.token_ids.size());
    planned.first_logit = static_cast<std::int32_t>(plan.logit_positions.size());
    planned.num_logits = static_cast<std::int32_t>(row.logit_positions.size());
    plan.rows.push_back(planned);
    plan.token_ids.insert(plan.token_ids.end(), row.tokens.begin(), row.tokens.end());
    plan.logit_positions.insert(plan.logit_positions.end(), row.logit_positions.begin(),
                                row.logit_positions.end());
    for (std::int32_t group = 0; group < groups; ++group) {
      plan.table_updates.push_back(
          {row.slot, group, 0, table_width_, static_cast<std::int32_t>(plan.block_ids.size())});
      const std::int32_t first = 1 + (row.slot * groups + group) * table_width_;
      for (std::int32_t i = 0; i < table_width_; ++i) plan.block_ids.push_back(first + i);
    }
  }
  must(inputs_->fill(plan, {}, {}));
  if (graph != nullptr) {
    must(device_->replay(*graph));
  } else {
    must(graphs_->run(*device_, static_cast<std::int32_t>(plan.token_ids.size()),
                      ForwardVariant::kPlain,
                      [&](const StepCapacity& c) { decoder_->forward(device_->ops(), c); }));
  }
  must(device_->synchronize());
  if (decoder_->logits().empty()) return {};
  std::vector<std::vector<float>> logits;
  const auto vocab = static_cast<std::size_t>(config_.vocab_size);
  for (std::size_t i = 0; i < plan.logit_positions.size(); ++i) {
    const float* row = decoder_->logits().as<float>() + i * vocab;
    logits.emplace_back(row, row + vocab);
  }
  return logits;
}

std::vector<float> DecoderHarness::hidden(std::size_t tokens) const {
  const auto* from = decoder_->hidden().as<float>();
  return {from, from + tokens * static_cast<std::size_t>(config_.hidden_size)};
}

void DecoderHarness::set_hidden(const std::vector<float>& values) {
  std::copy(values.begin(), values.end(), decoder_->hidden().as<float>());
}

double relative_error(const std::vector<std::vector<float>>& logits,
                      const std::vector<std::vector<float>>& expected) {
  CHECK(logits.size() == expected.size());
  double off = 0;
  double size = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    CHECK(logits[i].size() == expected[i].size());
    for (std::size_t v = 0; v < logits[i].size(); ++v) {
      off += std::pow(static_cast<double>(logits[i][v]) - expected[i][v], 2);
      size += std::pow(static_cast<double>(expected[i][v]), 2);
    }
  }
  return std::sqrt(off / size);
}

std::vector<std::vector<float>> prompt_logits(DecoderHarness& harness,
                                              const std::vector<TokenId>& prompt,
                                              const std::vector<std::int32_t>& positions) {
  return harness.run({{0, 0, prompt, positions}});
}

}  // namespace sluice::test
