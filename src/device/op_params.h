// Parameters of every op: one trivially copyable struct each, a shape beside each field.
// C++17-clean, free of other headers of ours but tensor/: device code includes it.
//
// Captured graphs keep these structs, so nothing in them may change from step to step: the real
// batch size, lengths, block tables and positions are read from device memory when an op runs
// (RowCount and the pointers below); only capacities are fixed at capture.
//
// Letters in shapes: T tokens of the step, S rows (sequences) of the step, L positions whose
// logits are wanted, H query heads, G KV heads, D head_dim, V vocabulary. T, S and L are
// capacities; rows past the real count are neither read nor written, but that a matmul may compute
// them from whatever lies in x and leave anything there in out (cuda/library_matmul.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "tensor/tensor_view.h"

namespace sluice {

// How many rows of a capacity are in use. `value` is read on the device when the op runs.
struct RowCount {
  const std::int32_t* value = nullptr;
  std::int32_t capacity = 0;
};

// out[t] = table[id], widened to out's dtype; id is token_ids[t], or, where that is negative, the
// token sampled last in slot s = -1 - token_ids[t]: last_tokens[s].
struct EmbedParams {
  TensorView table;                         // [V, hidden] weight dtype
  const std::int32_t* token_ids = nullptr;  // [T]
  TensorView out;                           // [T, hidden]
  RowCount rows;
  const std::int32_t* last_tokens = nullptr;  // [slots]; null where no id is negative
};

// residual += add (when add is not empty); out = residual / rms(residual) * weight.
struct RmsNormParams {
  TensorView residual;  // [T, hidden]; changed only when `add` is not empty
  TensorView add;       // [T, hidden] or empty
  TensorView weight;    // [hidden]
  TensorView out;       // [T, hidden]
  float epsilon = 0.0F;
  RowCount rows;
};

// residual += add (when add is not empty); out = (residual - mean) / deviation * weight + bias,
// mean and deviation = sqrt(variance + epsilon) being the row's.
struct LayerNormParams {
  TensorView residual;  // [T, hidden]; changed only when `add` is not empty
  TensorView add;       // [T, hidden] or empty
  TensorView weight;    // [hidden]
  TensorView bias;      // [hidden], of weight's dtype, or empty
  TensorView out;       // [T, hidden]
  float epsilon = 0.0F;
  RowCount rows;
};

// What the codes of an FP8 weight [N, K] count: element (n, k) is its code times
// values[n / block_rows * stride + k / block_cols]. One scale for the whole matrix is a block of
// N by K, one for each row blocks of 1 by K.
struct BlockScales {
  const float* values = nullptr;  // [ceil(N / block_rows), ceil(K / block_cols)]; null: no scales
  std::int32_t block_rows = 1;
  std::int32_t block_cols = 1;
  std::int64_t stride = 0;  // of a row of blocks: ceil(K / block_cols)
};

// One or more weights that share an input: out = [x W_0^T + b_0 | x W_1^T + b_1 | ...].
struct MatmulSegment {
  TensorView weight;        // [N_i, K], as it lies in the checkpoint
  TensorView bias;          // [N_i] or empty
  BlockScales scales = {};  // of a weight in FP8, and of no other
};
struct MatmulParams {
  static constexpr std::int32_t kMaxSegments = 3;
  TensorView x;                          // [T, K]
  MatmulSegment segments[kMaxSegments];  // N = sum of N_i
  std::int32_t num_segments = 0;
  TensorView out;  // [T, N]
  RowCount rows;
};

// LoRA, not merged into the weights: each token's row of a matmul's out gets scale * (x A^T) B^T of
// the adapter that its sequence uses.
//
// How it is called: lora_shrink with the matmul's x makes h = x A^T, lora_expand adds to its out;
// both for all modules of the matmul (q, k and v; o; gate and up; down), behind it and ahead of
// whoever reads out. A gated_matmul keeps its products to itself: a step with adapters takes its
// two ops instead. A step without adapters takes a graph without LoRA.
//
// The tokens of a step are listed by adapter, in segments that share one, and not by their place in
// the batch (LoraGrouping, device/lora_batch.h, makes the list). So an adapter is read once for all
// decodes that use it, wherever their rows are, and once for each piece of a prefill chunk; blocks
// of GPU threads find their work without searching; tokens without an adapter are in no segment,
// and nothing is done for them. With a slot per token instead, each token would have to fetch its
// adapter by itself. A result's bits depend neither on the list's order nor on where segments are
// cut.
//
// Adapters lie in slots of a memory region. Tables and lists hold offsets and indices, no
// addresses: a region that has moved changes parameters only.

// One module of one adapter in one layer. Offsets are in bytes behind LoraTable::base, multiples of
// kAlignment.
struct LoraEntry {
  static constexpr std::int64_t kAlignment = 64;
  std::int64_t a = 0;     // A [rank, K], as in PEFT's files
  std::int64_t b = 0;     // B transposed: [rank, N_i]
  std::int32_t rank = 0;  // 0: the adapter has nothing for this module
  float scale = 0.0F;     // alpha / rank, or what rsLoRA says
};
struct LoraTable {
  static constexpr std::int32_t kMaxModules = MatmulParams::kMaxSegments;
  static constexpr std::int32_t kMaxRank = 256;
  const void* base = nullptr;
  const LoraEntry* entries = nullptr;  // of slot s and module m: entries[s * stride + m]
  std::int64_t stride = 0;
  std::int32_t num_slots = 0;
  std::int32_t num_modules = 0;  // of the matmul
  std::int32_t max_rank = 0;     // of any entry; at most kMaxRank
  DType dtype = DType::kF32;     // of A and B
};
// Tokens batch.tokens[first] to batch.tokens[first + count - 1] use the adapter in `slot`.
struct LoraSegment {
  static constexpr std::int32_t kMaxTokens = 64;
  std::int32_t first = 0;
  std::int32_t count = 0;  // 1 to kMaxTokens
  std::int32_t slot = 0;
};
struct LoraBatch {
  const std::int32_t* tokens = nullptr;   // [H]: rows of x and out, each at most once
  const LoraSegment* segments = nullptr;  // [num_segments]
  RowCount num_segments;
};
// x A^T, in parts of K that are added up in order by lora_expand, so that many processors can share
// one adapter: row (p, i) belongs to part p and batch.tokens[i], module m begins at column
// m * max_rank. Columns behind an entry's rank are not written.
struct LoraHidden {
  static constexpr std::int64_t kPartDepth = 2048;
  float* data = nullptr;      // [parts, H, num_modules * max_rank]
  std::int32_t parts = 0;     // parts_of(K)
  std::int32_t capacity = 0;  // H, the most tokens that are listed
  static constexpr std::int32_t parts_of(std::int64_t depth) {
    return static_cast<std::int32_t>((depth + kPartDepth - 1) / kPartDepth);
  }
};

// h = x A^T, F32.
struct LoraShrinkParams {
  TensorView x;  // [T, K]
  LoraTable table;
  LoraBatch batch;
  LoraHidden h;
};

// out += scale * (h B^T) in the columns of each module. The product is summed from 0 in F32, rank
// by rank; out is rounded once, after scaling and adding.
struct LoraExpandParams {
  LoraHidden h;
  LoraTable table;
  LoraBatch batch;
  TensorView out;                                    // [T, N] F32, N = sum of N_i
  std::int64_t widths[LoraTable::kMaxModules] = {};  // N_i, in the order of the matmul's segments
};

// One layer's part of the KV cache. Key and value of token `offset` of block `b`, KV head `g`:
// k_base + b * block_stride + g * head_stride + offset * token_stride (in elements), D contiguous.
struct KvLayerView {
  void* k_base = nullptr;
  void* v_base = nullptr;
  DType dtype = DType::kF32;
  std::int32_t block_size = 0;
  std::int64_t block_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
};

// Per token of the step: normalize each query and key head (when norms are given), rotate them
// (halves rotated, as in Hugging Face checkpoints), leave the query in place and write key and
// value to the KV cache.
struct RopeWriteKvParams {
  TensorView qkv;                              // [T, (H + 2 G) * D]: queries, keys, values
  TensorView q_norm;                           // [D] or empty
  TensorView k_norm;                           // [D] or empty
  const float* cos_sin = nullptr;              // [max positions, rotary_dim]: cosines, then sines
  const std::int32_t* positions = nullptr;     // [T]
  const std::int64_t* slot_mapping = nullptr;  // [T]: block * block_size + offset
  KvLayerView kv;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t rotary_dim = 0;  // even, at most head_dim; the rest of a head is not rotated
  float norm_epsilon = 0.0F;
  RowCount rows;
};

// Causal attention of every row of the step over its blocks: prefill chunks and decodes alike.
// Query i of row s sits at position seq_lens[s] - query_len + i and sees positions up to its own,
// and with a window only the last `window` of them, its own included.
struct AttentionParams {
  TensorView q;  // [T, >= H * D], row stride as given
  KvLayerView kv;
  const std::int32_t* cu_seqlens_q = nullptr;  // [S + 1]: first token of each row
  const std::int32_t* seq_lens = nullptr;      // [S]: context + query
  const std::int32_t* block_tables = nullptr;  // [slots, table_stride] block ids
  const std::int32_t* row_slots = nullptr;     // [S]: row of block_tables
  std::int64_t table_stride = 0;
  void* plan = nullptr;  // of this group: AttentionPlanSize::device_bytes, see there
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;  // 0 = all positions
  float scale = 0.0F;
  TensorView out;  // [T, H * D]
  RowCount seqs;
};

// The largest steps that attention of one KV group will see.
struct AttentionPlanLimits {
  std::int32_t max_tokens = 0;
  std::int32_t max_seqs = 0;
  std::int32_t max_positions = 0;  // context + query of a row
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;
};

// A plan is made in host memory and copied to the start of its place on the device. What lies
// behind it there is the op's own, for partial results.
struct AttentionPlanSize {
  std::int64_t plan_bytes = 0;    // in host memory, at a multiple of 16
  std::int64_t device_bytes = 0;  // plan_bytes or more, at a multiple of 64
};

// Host side of attention: split the step's work, as plain integers. Called once per step and group,
// before the step runs.
struct AttentionPlanParams {
  AttentionPlanLimits limits;
  const std::int32_t* cu_seqlens_q = nullptr;  // [S + 1], host
  const std::int32_t* seq_lens = nullptr;      // [S], host
  std::int32_t num_seqs = 0;
  void* plan = nullptr;  // host, of AttentionPlanSize::plan_bytes for `limits`
};

// out = activation(gate) * up for gate_up = [gate | up].
enum class GatedActivation : std::uint8_t { kSilu, kGeluTanh };
struct GatedActivationParams {
  TensorView gate_up;  // [T, 2 * F]
  TensorView out;      // [T, F]
  GatedActivation activation = GatedActivation::kSilu;
  RowCount rows;
};

// out = activation(x W_gate^T + b_gate) * (x W_up^T + b_up). A backend that cannot do it in one go
// writes [gate | up] to scratch first; nobody may count on what lies there afterwards.
struct GatedMatmulParams {
  TensorView x;        // [T, K]
  MatmulSegment gate;  // [F, K]
  MatmulSegment up;    // [F, K]
  TensorView scratch;  // [T, 2 * F]
  TensorView out;      // [T, F]
  GatedActivation activation = GatedActivation::kSilu;
  RowCount rows;

  // The same in two ops.
  MatmulParams product() const { return {x, {gate, up}, 2, scratch, rows}; }
  GatedActivationParams activated() const { return {scratch, out, activation, rows}; }
};

// out[i] = in[indices[i]].
struct GatherRowsParams {
  TensorView in;                          // [T, hidden]
  const std::int32_t* indices = nullptr;  // [L]
  TensorView out;                         // [L, hidden]
  RowCount rows;                          // L
};

// Sum of `buffer` over the ranks of the tensor-parallel group, in rank order; the identity when
// world_size is 1.
struct AllReduceParams {
  TensorView buffer;  // [T, hidden]
  std::int32_t world_size = 1;
  RowCount rows;
};

// Copy-on-write of whole blocks, every layer of a group: target[i] = source[i].
struct CopyBlocksParams {
  void* kv_base = nullptr;              // the KV region
  std::int64_t block_bytes = 0;         // a block with all its layers is contiguous
  const std::int32_t* pairs = nullptr;  // [count, 2]: source, target
  RowCount rows;                        // count
};

// How one row's token is chosen; what is off keeps every token.
struct RowSampling {
  double uniform = 0.0;      // in [0, 1): the row's draw
  float temperature = 0.0F;  // 0: the best token
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
  std::int32_t slot = -1;  // of last_tokens; negative: the row is not sampled here
};

// tokens[i] = last_tokens[slot] = a token drawn from logits[i]; where these are not all finite,
// tokens[i] is -1 and last_tokens[slot] 0, which a step already submitted may read. Weights are
// exp((logit - best) / temperature). Kept are those of at least min_p, of these the top_k best, of
// these the fewest best whose weights sum to top_p of what is left; of equal logits the lower id is
// the better. The draw is the first kept token, by id, with a sum of weights up to its own above
// uniform * (sum of all kept).
struct SampleParams {
  TensorView logits;                      // [L, V] F32
  const RowSampling* sampling = nullptr;  // [L]
  std::int32_t* last_tokens = nullptr;    // [slots]
  std::int32_t* tokens = nullptr;         // [L]
  RowCount rows;
};

static_assert(std::is_trivially_copyable_v<EmbedParams>);
static_assert(std::is_trivially_copyable_v<SampleParams>);
static_assert(std::is_trivially_copyable_v<RmsNormParams>);
static_assert(std::is_trivially_copyable_v<LayerNormParams>);
static_assert(std::is_trivially_copyable_v<MatmulParams>);
static_assert(std::is_trivially_copyable_v<LoraShrinkParams>);
static_assert(std::is_trivially_copyable_v<LoraExpandParams>);
static_assert(std::is_trivially_copyable_v<RopeWriteKvParams>);
static_assert(std::is_trivially_copyable_v<AttentionParams>);
static_assert(std::is_trivially_copyable_v<AttentionPlanParams>);
static_assert(std::is_trivially_copyable_v<GatedActivationParams>);
static_assert(std::is_trivially_copyable_v<GatedMatmulParams>);
static_assert(std::is_trivially_copyable_v<GatherRowsParams>);
static_assert(std::is_trivially_copyable_v<AllReduceParams>);
static_assert(std::is_trivially_copyable_v<CopyBlocksParams>);

}  // namespace sluice
