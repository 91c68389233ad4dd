#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "device/lora_batch.h"
#include "model/rope.h"

namespace sluice {
namespace {

// The first `rows` rows of a matrix, and its first `cols` columns packed: several layers of
// different widths share one buffer.
TensorView slice(const TensorView& buffer, std::int32_t rows, std::int64_t cols) {
  return matrix_view(buffer.data, buffer.dtype, rows, cols);
}

// A head in F16 or F32 beside matrices that are widened to BF16 takes inputs of its own dtype;
// every other head those of the layers.
DType head_input(const DeviceTraits& traits, WeightDTypes weights, DType input) {
  const bool widened =
      is_blocks(weights.matrices) || (weights.matrices == DType::kF8E4M3 && traits.fp8_as_bf16);
  const bool own = widened && is_float(weights.ends);
  return own ? traits.matmul_input_dtype(weights.ends) : input;
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const Options& options, WeightDTypes weights,
                 const DeviceTraits& traits, ArenaPlan& arena)
    : config_(config),
      options_(options),
      wide_(traits.residual_dtype),
      row_spacing_(traits.row_spacing),
      input_(traits.matmul_input_dtype(weights.matrices, weights.others)),
      head_input_(head_input(traits, weights, input_)) {
  CHECK(options.first_layer >= 0 && options.first_layer < options.last_layer &&
        options.last_layer <= config.num_layers);
  CHECK(options.adapter_slots == 0 ||
        (options.max_lora_rank > 0 && options.max_lora_rank <= LoraTable::kMaxRank));
  CHECK(options.capacity.tokens > 0 && options.capacity.seqs > 0 && options.capacity.logits > 0);
  plan_buffers(arena);
}

std::string Decoder::buffer_name(std::string_view name) const {
  return fmt::format("{}/{}", options_.model_id, name);
}

Decoder::Widths Decoder::max_widths() const {
  Widths widths;
  for (std::int32_t i = options_.first_layer; i < options_.last_layer; ++i) {
    const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
    widths.qkv = std::max(widths.qkv, layer.q_width() + 2 * layer.kv_width());
    widths.attention = std::max(widths.attention, layer.q_width());
    widths.intermediate = std::max(widths.intermediate, layer.intermediate_size);
  }
  return widths;
}

// The matmuls of a layer take turns with one buffer.
std::size_t Decoder::lora_hidden_bytes() const {
  const Widths widths = max_widths();
  const auto columns = [](std::int64_t depth, std::int32_t modules) {
    return static_cast<std::size_t>(LoraHidden::parts_of(depth) * modules);
  };
  const std::size_t most =
      std::max({columns(config_.hidden_size, 3), columns(widths.attention, 1),
                columns(config_.hidden_size, 2), columns(widths.intermediate, 1)});
  return most * static_cast<std::size_t>(options_.capacity.tokens) *
         static_cast<std::size_t>(options_.max_lora_rank) * sizeof(float);
}

std::int64_t Decoder::product_stride(std::int64_t cols) const {
  return spaced_stride(cols, wide_, row_spacing_);
}

// Sets shapes only; bind() sets addresses.
void Decoder::plan_buffers(ArenaPlan& arena) {
  const Widths widths = max_widths();
  const StepCapacity& most = options_.capacity;
  const auto add = [&](TensorView& view, std::string_view name, DType dtype, std::int32_t rows,
                       std::int64_t cols) {
    view = matrix_view(nullptr, dtype, rows, cols);
    arena.add(RegionKind::kWorkspace, buffer_name(name),
              static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * size_of(dtype));
  };
  const auto add_product = [&](TensorView& view, std::string_view name, std::int64_t cols) {
    add(view, name, wide_, most.tokens, product_stride(cols));
  };
  Buffers& b = buffers_;
  add(b.residual, "residual", wide_, most.tokens, config_.hidden_size);
  const DType wider = size_of(head_input_) > size_of(input_) ? head_input_ : input_;
  add(b.normed, "normed", wider, most.tokens, config_.hidden_size);
  b.final_normed = matrix_view(nullptr, head_input_, most.tokens, config_.hidden_size);
  b.normed = matrix_view(nullptr, input_, most.tokens, config_.hidden_size);
  add_product(b.qkv, "qkv", widths.qkv);
  add(b.attention, "attention", input_, most.tokens, widths.attention);
  add_product(b.projected, "projected", config_.hidden_size);
  add_product(b.gate_up, "gate_up", std::int64_t{2} * widths.intermediate);
  add(b.activated, "activated", input_, most.tokens, widths.intermediate);
  if (options_.last_layer == config_.num_layers) {
    add(b.gathered, "gathered", head_input_, most.logits, config_.hidden_size);
    add(b.logits, "logits", DType::kF32, most.logits, config_.vocab_size);
  }
  if (options_.adapter_slots > 0) {
    arena.add(RegionKind::kWorkspace, buffer_name("lora_hidden"), lora_hidden_bytes());
  }
  for (std::size_t i = 0; options_.has_rope_tables && i < config_.ropes.size(); ++i) {
    arena.add(RegionKind::kInputs, buffer_name(fmt::format("rope{}", i)),
              rope_floats(config_.ropes[i]) * sizeof(float));
  }
}

Status Decoder::bind(const Arena& arena, Device& device, DecoderWeights weights,
                     DecoderInputs inputs, std::span<const float> rope) {
  CHECK(static_cast<std::int32_t>(weights.layers.size()) ==
        options_.last_layer - options_.first_layer);
  CHECK(inputs.layers.size() == weights.layers.size());
  weights_ = std::move(weights);
  inputs_ = std::move(inputs);
  Buffers& b = buffers_;
  const auto bind_one = [&](TensorView& view, std::string_view name) {
    if (view.rank != 0) view.data = arena.address(RegionKind::kWorkspace, buffer_name(name));
  };
  bind_one(b.residual, "residual");
  bind_one(b.normed, "normed");
  bind_one(b.final_normed, "normed");
  bind_one(b.qkv, "qkv");
  bind_one(b.attention, "attention");
  bind_one(b.projected, "projected");
  bind_one(b.gate_up, "gate_up");
  bind_one(b.activated, "activated");
  bind_one(b.gathered, "gathered");
  bind_one(b.logits, "logits");
  if (options_.adapter_slots > 0) {
    b.lora_hidden =
        reinterpret_cast<float*>(arena.address(RegionKind::kWorkspace, buffer_name("lora_hidden")));
  }
  if (!options_.has_rope_tables) {
    CHECK(rope.empty() && weights_.rope_tables.size() == config_.ropes.size());
    rope_tables_.clear();
    for (const TensorView& table : weights_.rope_tables) {
      rope_tables_.push_back(table.as<const float>());
    }
    return {};
  }
  if (!rope.empty()) return write_rope_tables(arena, device, rope);
  return write_rope_tables(arena, device, rope_tables());
}

std::size_t Decoder::rope_floats(const RopeConfig& rope) const {
  return static_cast<std::size_t>(options_.max_positions) *
         static_cast<std::size_t>(rope.rotary_dim);
}

std::size_t Decoder::rope_floats() const {
  std::size_t floats = 0;
  for (const RopeConfig& rope : config_.ropes) floats += rope_floats(rope);
  return floats;
}

std::vector<float> Decoder::rope_tables() const {
  std::vector<float> tables(rope_floats());
  std::span<float> rest(tables);
  for (const RopeConfig& rope : config_.ropes) {
    fill_rope_table(rope, 0, options_.max_positions, rest.first(rope_floats(rope)));
    rest = rest.subspan(rope_floats(rope));
  }
  return tables;
}

Status Decoder::write_rope_tables(const Arena& arena, Device& device,
                                  std::span<const float> tables) {
  CHECK(tables.size() == rope_floats());
  rope_tables_.clear();
  for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
    const auto table = tables.first(rope_floats(config_.ropes[i]));
    tables = tables.subspan(table.size());
    std::byte* target = arena.address(RegionKind::kInputs, buffer_name(fmt::format("rope{}", i)));
    RETURN_IF_ERROR(device.copy_to_device(target, table.data(), table.size_bytes()));
    RETURN_IF_ERROR(device.synchronize());
    rope_tables_.push_back(reinterpret_cast<const float*>(target));
  }
  return {};
}

void Decoder::forward(Ops& ops, const StepCapacity& capacity, ForwardVariant variant) const {
  forward(ops, capacity, variant, [](std::size_t) {});
}

void Decoder::forward(Ops& ops, const StepCapacity& capacity, ForwardVariant variant,
                      BeforeStage before, const DecoderStreamedKv* streamed) const {
  CHECK(variant == ForwardVariant::kPlain || options_.adapter_slots > 0);
  const Pass pass{ops, capacity, variant, streamed};
  const RowCount rows{inputs_.num_tokens, capacity.tokens};
  const TensorView residual = slice(buffers_.residual, capacity.tokens, config_.hidden_size);
  std::size_t stage = 0;
  before(stage);
  if (options_.first_layer == 0) {
    ops.run(EmbedParams{weights_.embedding, inputs_.token_ids, residual, rows, inputs_.last_tokens,
                        weights_.embedding_scales});
  }
  // Every norm but the first adds what the block before it projected.
  const TensorView projected = product_in(buffers_.projected, capacity.tokens, config_.hidden_size);
  TensorView pending;
  for (std::int32_t i = options_.first_layer; i < options_.last_layer; ++i) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i - options_.first_layer)];
    before(++stage);
    norm(pass, pending, w.input_norm, buffers_.normed);
    attention(pass, i);
    norm(pass, projected, w.post_attention_norm, buffers_.normed);
    mlp(pass, i);
    pending = projected;
  }
  before(++stage);
  if (options_.last_layer == config_.num_layers) {
    norm(pass, pending, weights_.final_norm, buffers_.final_normed);
    project_logits(pass);
  } else {
    // Called only for its addition to the residual stream, because the next stage's first norm adds
    // nothing. So a model in stages computes the same bits as a whole model.
    norm(pass, pending, weights_.layers.back().input_norm, buffers_.normed);
  }
}

void Decoder::norm(const Pass& pass, const TensorView& add, const TensorView& weight,
                   const TensorView& normed) const {
  const StepCapacity& capacity = pass.capacity;
  pass.ops.run(RmsNormParams{slice(buffers_.residual, capacity.tokens, config_.hidden_size),
                             add,
                             weight,
                             slice(normed, capacity.tokens, config_.hidden_size),
                             config_.norm_epsilon,
                             {inputs_.num_tokens, capacity.tokens}});
}

// Runs a matmul of a layer, and the adapters' parts of its modules.
void Decoder::layer_matmul(const Pass& pass, std::int32_t layer, std::int32_t first_module,
                           const MatmulParams& product) const {
  pass.ops.run(product);
  if (pass.variant == ForwardVariant::kPlain) return;
  const DecoderAdapters& adapters = inputs_.adapters;
  LoraTable table;
  table.base = adapters.base;
  table.entries = adapters.entries + layer * kLoraModulesPerLayer + first_module;
  table.stride = std::int64_t{config_.num_layers} * kLoraModulesPerLayer;
  table.num_slots = options_.adapter_slots;
  table.num_modules = product.num_segments;
  table.max_rank = options_.max_lora_rank;
  table.dtype = input_;
  const LoraBatch batch{
      adapters.tokens,
      adapters.segments,
      {adapters.num_segments, max_lora_segments(pass.capacity.tokens, options_.adapter_slots)}};
  const LoraHidden hidden{buffers_.lora_hidden, LoraHidden::parts_of(product.x.dims[1]),
                          pass.capacity.tokens};
  pass.ops.run(LoraShrinkParams{product.x, table, batch, hidden});
  LoraExpandParams expand{hidden, table, batch, product.out};
  for (std::int32_t m = 0; m < product.num_segments; ++m) {
    expand.widths[m] = product.segments[m].weight.dims[0];
  }
  pass.ops.run(expand);
}

Decoder::LayerKv Decoder::kv_of(const Pass& pass, std::int32_t layer) const {
  if (pass.streamed != nullptr) {
    const auto& window = pass.streamed->windows[static_cast<std::size_t>(layer % 2)];
    return {pass.streamed->view, window.slot_mapping, window.block_table, 0};
  }
  const DecoderLayerKv& kv = inputs_.layers[static_cast<std::size_t>(layer - options_.first_layer)];
  const DecoderGroupInputs& group = inputs_.groups[static_cast<std::size_t>(kv.group)];
  return {kv.view, group.slot_mapping, group.block_tables, group.table_stride};
}

void Decoder::attention(const Pass& pass, std::int32_t layer) const {
  Ops& ops = pass.ops;
  const StepCapacity& capacity = pass.capacity;
  const LayerConfig& c = config_.layers[static_cast<std::size_t>(layer)];
  const auto index = static_cast<std::size_t>(layer - options_.first_layer);
  const LayerWeights& w = weights_.layers[index];
  const LayerKv kv = kv_of(pass, layer);
  const auto group = static_cast<std::size_t>(inputs_.layers[index].group);
  const RowCount rows{inputs_.num_tokens, capacity.tokens};
  const TensorView normed = slice(buffers_.normed, capacity.tokens, config_.hidden_size);
  const TensorView qkv = product_in(buffers_.qkv, capacity.tokens, c.q_width() + 2 * c.kv_width());
  const TensorView out = slice(buffers_.attention, capacity.tokens, c.q_width());
  const TensorView projected = product_in(buffers_.projected, capacity.tokens, config_.hidden_size);

  layer_matmul(pass, layer, 0,
               MatmulParams{normed,
                            {{w.q, w.q_bias, w.q_scales, w.q_order},
                             {w.k, w.k_bias, w.k_scales, w.k_order},
                             {w.v, w.v_bias, w.v_scales, w.v_order}},
                            3,
                            qkv,
                            rows});

  RopeWriteKvParams rope;
  rope.qkv = qkv;
  rope.q_norm = w.q_norm;
  rope.k_norm = w.k_norm;
  rope.cos_sin = rope_tables_[static_cast<std::size_t>(c.rope)];
  rope.positions = inputs_.positions;
  rope.slot_mapping = kv.slot_mapping;
  rope.kv = kv.view;
  rope.num_heads = c.num_heads;
  rope.num_kv_heads = c.num_kv_heads;
  rope.head_dim = c.head_dim;
  rope.rotary_dim = config_.ropes[static_cast<std::size_t>(c.rope)].rotary_dim;
  rope.norm_epsilon = config_.norm_epsilon;
  rope.rows = rows;
  ops.run(rope);

  AttentionParams attention;
  attention.q = matrix_view(qkv.data, qkv.dtype, capacity.tokens, c.q_width(), qkv.strides[0]);
  attention.kv = kv.view;
  attention.cu_seqlens_q = inputs_.cu_seqlens_q;
  attention.seq_lens = inputs_.seq_lens;
  attention.block_tables = kv.block_tables;
  attention.row_slots = inputs_.row_slots;
  attention.table_stride = kv.table_stride;
  attention.plan = inputs_.groups[group].attention_plan;
  attention.num_heads = c.num_heads;
  attention.num_kv_heads = c.num_kv_heads;
  attention.head_dim = c.head_dim;
  attention.window = c.window;
  attention.scale = c.attention_scale();
  attention.out = out;
  attention.seqs = {inputs_.num_seqs, capacity.seqs};
  ops.run(attention);

  layer_matmul(pass, layer, 3,
               MatmulParams{out, {{w.o, w.o_bias, w.o_scales, w.o_order}}, 1, projected, rows});
  ops.run(AllReduceParams{projected, 1, rows});
}

void Decoder::mlp(const Pass& pass, std::int32_t layer) const {
  const StepCapacity& capacity = pass.capacity;
  const LayerConfig& c = config_.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer - options_.first_layer)];
  const RowCount rows{inputs_.num_tokens, capacity.tokens};
  const TensorView normed = slice(buffers_.normed, capacity.tokens, config_.hidden_size);
  const TensorView gate_up =
      product_in(buffers_.gate_up, capacity.tokens, std::int64_t{2} * c.intermediate_size);
  const TensorView activated = slice(buffers_.activated, capacity.tokens, c.intermediate_size);
  const TensorView projected = product_in(buffers_.projected, capacity.tokens, config_.hidden_size);
  const GatedMatmulParams gated{normed,
                                {w.gate, w.gate_bias, w.gate_scales, w.gate_order},
                                {w.up, w.up_bias, w.up_scales, w.up_order},
                                gate_up,
                                activated,
                                c.activation,
                                rows};
  if (pass.variant == ForwardVariant::kPlain) {
    pass.ops.run(gated);
  } else {
    // LoRA adds to the products before the activation.
    layer_matmul(pass, layer, 4, gated.product());
    pass.ops.run(gated.activated());
  }
  layer_matmul(
      pass, layer, 6,
      MatmulParams{
          activated, {{w.down, w.down_bias, w.down_scales, w.down_order}}, 1, projected, rows});
  pass.ops.run(AllReduceParams{projected, 1, rows});
}

void Decoder::project_logits(const Pass& pass) const {
  Ops& ops = pass.ops;
  const StepCapacity& capacity = pass.capacity;
  const RowCount rows{inputs_.num_logits, capacity.logits};
  const TensorView normed = slice(buffers_.final_normed, capacity.tokens, config_.hidden_size);
  const TensorView gathered = slice(buffers_.gathered, capacity.logits, config_.hidden_size);
  const TensorView logits = slice(buffers_.logits, capacity.logits, config_.vocab_size);
  ops.run(GatherRowsParams{normed, inputs_.logit_indices, gathered, rows});
  ops.run(MatmulParams{gathered,
                       {{weights_.lm_head, {}, weights_.lm_head_scales, weights_.lm_head_order}},
                       1,
                       logits,
                       rows});
}

}  // namespace sluice
