#include "model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "model/rope.h"

namespace sluice {
namespace {

// The first `rows` rows of a matrix, and its first `cols` columns packed: several layers of
// different widths share one buffer.
TensorView slice(const TensorView& buffer, std::int32_t rows, std::int64_t cols) {
  return matrix_view(buffer.data, buffer.dtype, rows, cols);
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const Options& options, WeightDTypes weights,
                 const DeviceTraits& traits, ArenaPlan& arena)
    : config_(config),
      options_(options),
      wide_(traits.residual_dtype),
      input_(traits.matmul_input_dtype(weights.matrices, weights.others)) {
  CHECK(options.first_layer >= 0 && options.first_layer < options.last_layer &&
        options.last_layer <= config.num_layers);
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
  Buffers& b = buffers_;
  add(b.residual, "residual", wide_, most.tokens, config_.hidden_size);
  add(b.normed, "normed", input_, most.tokens, config_.hidden_size);
  add(b.qkv, "qkv", wide_, most.tokens, widths.qkv);
  add(b.attention, "attention", input_, most.tokens, widths.attention);
  add(b.projected, "projected", wide_, most.tokens, config_.hidden_size);
  add(b.gate_up, "gate_up", wide_, most.tokens, std::int64_t{2} * widths.intermediate);
  add(b.activated, "activated", input_, most.tokens, widths.intermediate);
  if (options_.last_layer == config_.num_layers) {
    add(b.gathered, "gathered", input_, most.logits, config_.hidden_size);
    add(b.logits, "logits", DType::kF32, most.logits, config_.vocab_size);
  }
  for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
    arena.add(RegionKind::kInputs, buffer_name(fmt::format("rope{}", i)),
              static_cast<std::size_t>(options_.max_positions) *
                  static_cast<std::size_t>(config_.ropes[i].rotary_dim) * sizeof(float));
  }
}

Status Decoder::bind(const Arena& arena, Device& device, DecoderWeights weights,
                     DecoderInputs inputs) {
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
  bind_one(b.qkv, "qkv");
  bind_one(b.attention, "attention");
  bind_one(b.projected, "projected");
  bind_one(b.gate_up, "gate_up");
  bind_one(b.activated, "activated");
  bind_one(b.gathered, "gathered");
  bind_one(b.logits, "logits");
  return write_rope_tables(arena, device);
}

Status Decoder::write_rope_tables(const Arena& arena, Device& device) {
  rope_tables_.clear();
  for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
    std::vector<float> table(static_cast<std::size_t>(options_.max_positions) *
                             static_cast<std::size_t>(config_.ropes[i].rotary_dim));
    fill_rope_table(config_.ropes[i], 0, options_.max_positions, table);
    std::byte* target = arena.address(RegionKind::kInputs, buffer_name(fmt::format("rope{}", i)));
    RETURN_IF_ERROR(device.copy_to_device(target, table.data(), table.size() * sizeof(float)));
    RETURN_IF_ERROR(device.synchronize());
    rope_tables_.push_back(reinterpret_cast<const float*>(target));
  }
  return {};
}

void Decoder::forward(Ops& ops, const StepCapacity& capacity) const {
  forward(ops, capacity, [](std::size_t) {});
}

void Decoder::forward(Ops& ops, const StepCapacity& capacity, BeforeStage before) const {
  const RowCount rows{inputs_.num_tokens, capacity.tokens};
  const TensorView residual = slice(buffers_.residual, capacity.tokens, config_.hidden_size);
  std::size_t stage = 0;
  before(stage);
  if (options_.first_layer == 0) {
    ops.run(
        EmbedParams{weights_.embedding, inputs_.token_ids, residual, rows, inputs_.last_tokens});
  }
  // Every norm but the first adds what the block before it projected.
  const TensorView projected = slice(buffers_.projected, capacity.tokens, config_.hidden_size);
  TensorView pending;
  for (std::int32_t i = options_.first_layer; i < options_.last_layer; ++i) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i - options_.first_layer)];
    before(++stage);
    norm(ops, capacity, pending, w.input_norm);
    attention(ops, capacity, i);
    norm(ops, capacity, projected, w.post_attention_norm);
    mlp(ops, capacity, i);
    pending = projected;
  }
  before(++stage);
  if (options_.last_layer == config_.num_layers) {
    norm(ops, capacity, pending, weights_.final_norm);
    project_logits(ops, capacity);
  } else {
    // Called only for its addition to the residual stream, because the next stage's first norm adds
    // nothing. So a model in stages computes the same bits as a whole model.
    norm(ops, capacity, pending, weights_.layers.back().input_norm);
  }
}

void Decoder::norm(Ops& ops, const StepCapacity& capacity, const TensorView& add,
                   const TensorView& weight) const {
  ops.run(RmsNormParams{slice(buffers_.residual, capacity.tokens, config_.hidden_size),
                        add,
                        weight,
                        slice(buffers_.normed, capacity.tokens, config_.hidden_size),
                        config_.norm_epsilon,
                        {inputs_.num_tokens, capacity.tokens}});
}

void Decoder::attention(Ops& ops, const StepCapacity& capacity, std::int32_t layer) const {
  const LayerConfig& c = config_.layers[static_cast<std::size_t>(layer)];
  const auto index = static_cast<std::size_t>(layer - options_.first_layer);
  const LayerWeights& w = weights_.layers[index];
  const DecoderLayerKv& kv = inputs_.layers[index];
  const DecoderGroupInputs& group = inputs_.groups[static_cast<std::size_t>(kv.group)];
  const RowCount rows{inputs_.num_tokens, capacity.tokens};
  const TensorView normed = slice(buffers_.normed, capacity.tokens, config_.hidden_size);
  const TensorView qkv = slice(buffers_.qkv, capacity.tokens, c.q_width() + 2 * c.kv_width());
  const TensorView out = slice(buffers_.attention, capacity.tokens, c.q_width());
  const TensorView projected = slice(buffers_.projected, capacity.tokens, config_.hidden_size);

  ops.run(MatmulParams{
      normed,
      {{w.q, w.q_bias, w.q_scales}, {w.k, w.k_bias, w.k_scales}, {w.v, w.v_bias, w.v_scales}},
      3,
      qkv,
      rows});

  RopeWriteKvParams rope;
  rope.qkv = qkv;
  rope.q_norm = w.q_norm;
  rope.k_norm = w.k_norm;
  rope.cos_sin = rope_tables_[static_cast<std::size_t>(c.rope)];
  rope.positions = inputs_.positions;
  rope.slot_mapping = group.slot_mapping;
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
  attention.block_tables = group.block_tables;
  attention.row_slots = inputs_.row_slots;
  attention.table_stride = group.table_stride;
  attention.plan = group.attention_plan;
  attention.num_heads = c.num_heads;
  attention.num_kv_heads = c.num_kv_heads;
  attention.head_dim = c.head_dim;
  attention.window = c.window;
  attention.scale = c.attention_scale();
  attention.out = out;
  attention.seqs = {inputs_.num_seqs, capacity.seqs};
  ops.run(attention);

  ops.run(MatmulParams{out, {{w.o, w.o_bias, w.o_scales}}, 1, projected, rows});
  ops.run(AllReduceParams{projected, 1, rows});
}

void Decoder::mlp(Ops& ops, const StepCapacity& capacity, std::int32_t layer) const {
  const LayerConfig& c = config_.layers[static_cast<std::size_t>(layer)];
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer - options_.first_layer)];
  const RowCount rows{inputs_.num_tokens, capacity.tokens};
  const TensorView normed = slice(buffers_.normed, capacity.tokens, config_.hidden_size);
  const TensorView gate_up =
      slice(buffers_.gate_up, capacity.tokens, std::int64_t{2} * c.intermediate_size);
  const TensorView activated = slice(buffers_.activated, capacity.tokens, c.intermediate_size);
  const TensorView projected = slice(buffers_.projected, capacity.tokens, config_.hidden_size);
  ops.run(GatedMatmulParams{normed,
                            {w.gate, w.gate_bias, w.gate_scales},
                            {w.up, w.up_bias, w.up_scales},
                            gate_up,
                            activated,
                            c.activation,
                            rows});
  ops.run(MatmulParams{activated, {{w.down, w.down_bias, w.down_scales}}, 1, projected, rows});
  ops.run(AllReduceParams{projected, 1, rows});
}

void Decoder::project_logits(Ops& ops, const StepCapacity& capacity) const {
  const RowCount rows{inputs_.num_logits, capacity.logits};
  const TensorView normed = slice(buffers_.normed, capacity.tokens, config_.hidden_size);
  const TensorView gathered = slice(buffers_.gathered, capacity.logits, config_.hidden_size);
  const TensorView logits = slice(buffers_.logits, capacity.logits, config_.vocab_size);
  ops.run(GatherRowsParams{normed, inputs_.logit_indices, gathered, rows});
  ops.run(MatmulParams{gathered, {{weights_.lm_head, {}}}, 1, logits, rows});
}

}  // namespace sluice
