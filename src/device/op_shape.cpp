#include "device/op_shape.h"

#include <fmt/format.h>

namespace sluice {
namespace {

class Shapes {
 public:
  explicit Shapes(bool host_accessible) : host_accessible_(host_accessible) {}

  std::string operator()(const EmbedParams& p) const {
    return fmt::format("{} x {} {}", rows(p.rows), p.out.dims[1], dtype_name(p.table.dtype));
  }
  std::string operator()(const RmsNormParams& p) const {
    return fmt::format("{} x {}", rows(p.rows), p.out.dims[1]);
  }
  std::string operator()(const LayerNormParams& p) const {
    return fmt::format("{} x {}", rows(p.rows), p.out.dims[1]);
  }
  std::string operator()(const MatmulParams& p) const {
    std::int64_t width = 0;
    for (std::int32_t i = 0; i < p.num_segments; ++i) width += p.segments[i].weight.dims[0];
    return product(p.rows, p.x, width, p.segments[0].weight.dtype);
  }
  std::string operator()(const GatedMatmulParams& p) const {
    return product(p.rows, p.x, 2 * p.gate.weight.dims[0], p.gate.weight.dtype);
  }
  std::string operator()(const RopeWriteKvParams& p) const {
    return fmt::format("{} x ({} + 2 * {}) x {}", rows(p.rows), p.num_heads, p.num_kv_heads,
                       p.head_dim);
  }
  // The sum of queries and of keys over the rows of the step, and the shape of heads.
  std::string operator()(const AttentionParams& p) const {
    const std::int32_t seqs = rows(p.seqs);
    const std::string heads = fmt::format("{}/{} heads x {} {}", p.num_heads, p.num_kv_heads,
                                          p.head_dim, dtype_name(p.kv.dtype));
    if (!host_accessible_) return fmt::format("{} rows, {}", seqs, heads);
    std::int64_t keys = 0;
    for (std::int32_t i = 0; i < seqs; ++i) keys += p.seq_lens[i];
    return fmt::format("{} rows, {} queries, {} keys, {}", seqs, p.cu_seqlens_q[seqs], keys, heads);
  }
  std::string operator()(const GatedActivationParams& p) const {
    return fmt::format("{} x {}", rows(p.rows), p.out.dims[1]);
  }
  std::string operator()(const GatherRowsParams& p) const {
    return fmt::format("{} x {}", rows(p.rows), p.out.dims[1]);
  }
  std::string operator()(const AllReduceParams& p) const {
    return fmt::format("{} x {}", rows(p.rows), p.buffer.dims[1]);
  }
  std::string operator()(const CopyBlocksParams& p) const {
    return fmt::format("{} x {} bytes", rows(p.rows), p.block_bytes);
  }
  std::string operator()(const SampleParams& p) const {
    return fmt::format("{} x {}", rows(p.rows), p.logits.dims[1]);
  }
  std::string operator()(const LoraShrinkParams& p) const {
    return fmt::format("{} segments of K {}", rows(p.batch.num_segments), p.x.dims[1]);
  }
  std::string operator()(const LoraExpandParams& p) const {
    return fmt::format("{} segments to N {}", rows(p.batch.num_segments), p.out.dims[1]);
  }

 private:
  std::int32_t rows(const RowCount& count) const {
    return host_accessible_ && count.value != nullptr ? *count.value : count.capacity;
  }
  std::string product(const RowCount& count, const TensorView& x, std::int64_t width,
                      DType weight) const {
    return fmt::format("{} x {} by {} {}", rows(count), x.dims[1], width, dtype_name(weight));
  }

  bool host_accessible_;
};

// The op's own parameters, found by its id.
template <class... Params>
std::string shape_of(const OpCall& call, const Shapes& shapes, TypeList<Params...>) {
  std::string text;
  static_cast<void>(
      ((call.op == Params::kOp ? (text = shapes(call.as<Params>()), true) : false) || ...));
  return text;
}

}  // namespace

std::string op_shape(const OpCall& call, bool host_accessible) {
  return shape_of(call, Shapes(host_accessible), OpTypes{});
}

}  // namespace sluice
