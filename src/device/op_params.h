// Parameters of every op: one trivially copyable struct each, with the op's id and name, and a
// shape beside each field. This header is valid C++17 and includes only tensor/ of this project,
// because device code includes it.
//
// To add an op: declare its struct here, list it in op_types.h, name its fields in op_tables.h, and
// write a kernel for each backend.
//
// Graphs keep these structs, so no field may change from step to step. Ops read the real batch
// size, lengths, block tables and positions from device memory when they run (RowCount and the
// pointers below); only capacities are fixed at capture.
//
// Letters in shapes: T tokens of the step, S rows (sequences) of the step, L positions whose
// logits are wanted, H query heads, G KV heads, D head_dim, V vocabulary. T, S and L are
// capacities. Ops neither read nor write rows past the real count, with one exception: a matmul may
// compute such rows from any bits in x and write them to out (cuda/library_matmul.h).
#pragma once

#include <cstdint>
#include <limits>

#include "tensor/tensor_view.h"

namespace sluice {

// Names an op in graphs and in snapshot files. Each struct of parameters has its own id, which
// never changes and is never reused: a new op takes the next number.
enum class OpId : std::uint16_t {};

// The number of rows of a capacity that are in use. The op reads `value` on the device when it
// runs.
struct RowCount {
  const std::int32_t* value = nullptr;
  std::int32_t capacity = 0;
};

// The scales of a quantized weight [N, K]: element (n, k) is its code times
// values[n / block_rows * stride + k / block_cols]. A single scale for the matrix is a block of N
// by K; a scale for each row is a block of 1 by K. Weights in INT8 have no blocks along K.
struct BlockScales {
  const float* values = nullptr;  // [ceil(N / block_rows), ceil(K / block_cols)]; null: no scales
  std::int32_t block_rows = 1;
  std::int32_t block_cols = 1;
  std::int64_t stride = 0;  // between rows of blocks: ceil(K / block_cols)
};

// out[t] = table[id], widened to out's dtype; elements of blocks are rounded to BF16 first. The id
// is token_ids[t]; if that is negative, the id is last_tokens[-1 - token_ids[t]], the last token
// sampled for that slot.
struct EmbedParams {
  static constexpr OpId kOp{1};
  static constexpr const char* kName = "embed";

  TensorView table;                         // [V, hidden] weight dtype
  const std::int32_t* token_ids = nullptr;  // [T]
  TensorView out;                           // [T, hidden]
  RowCount rows;
  const std::int32_t* last_tokens = nullptr;  // [slots]; null if no id is negative
  BlockScales scales = {};                    // for a table in INT8
};

// residual += add (when add is not empty); out = residual / rms(residual) * weight.
struct RmsNormParams {
  static constexpr OpId kOp{2};
  static constexpr const char* kName = "rms_norm";

  TensorView residual;  // [T, hidden]; changed only when `add` is not empty
  TensorView add;       // [T, hidden] or empty
  TensorView weight;    // [hidden]
  TensorView out;       // [T, hidden]
  float epsilon = 0.0F;
  RowCount rows;
};

// residual += add (when add is not empty); out = (residual - mean) / deviation * weight + bias.
// Mean and deviation = sqrt(variance + epsilon) are taken over the row.
struct LayerNormParams {
  static constexpr OpId kOp{14};
  static constexpr const char* kName = "layer_norm";

  TensorView residual;  // [T, hidden]; changed only when `add` is not empty
  TensorView add;       // [T, hidden] or empty
  TensorView weight;    // [hidden]
  TensorView bias;      // [hidden], of weight's dtype, or empty
  TensorView out;       // [T, hidden]
  float epsilon = 0.0F;
  RowCount rows;
};

// One or more weights that share an input: out = [x W_0^T + b_0 | x W_1^T + b_1 | ...].
//
// If the weights are in INT8 (all of a matmul are, or none), each row of x is quantized for the
// product: its codes are x * (127 / max |x|), rounded to nearest even, and its scale is
// max |x| / 127. A row with max |x| < kSmallestInput becomes zeros; one with NaN or infinity has
// the scale NaN. The sum over K is exact, in 32-bit integers, so every implementation computes
// float(sum) * (scale of the row * scale of the weight) + bias with the same bits.
struct MatmulSegment {
  TensorView weight;        // [N_i, K], unchanged from the checkpoint
  TensorView bias;          // [N_i] or empty
  BlockScales scales = {};  // for weights in FP8 and INT8 only
  // [K] or null, for weights in blocks on the CPU only: column k of the weight takes column
  // order[k] of x.
  const std::int32_t* order = nullptr;
};
// Weights in FP8, times their scales, are rounded to BF16 where DeviceTraits::fp8_as_bf16.
//
// Weights in blocks take x in BF16. Each line of 32 elements along K of a row of x is quantized as
// for weights in INT8, with a scale of its own. A line of the
// weight has integer codes, a scale and, if has_minimum(), a minimum and a whole number for each 16
// elements (block_line() in tensor/gguf_blocks.h). The sum of products of codes is exact; then, for
// each line in order, from sum = 0: sum = fma(float(products), scale of the weight * scale of x,
// sum), and with a minimum sum = fma(-minimum, scale of x * float(sum of x's codes times these
// numbers), sum). The bias is added last. Every implementation of this computes the same bits.
struct MatmulParams {
  static constexpr OpId kOp{3};
  static constexpr const char* kName = "matmul";

  static constexpr std::int32_t kMaxSegments = 3;
  // For weights in INT8, and the depth for blocks too. The largest sum is kMaxIntegerDepth
  // * 255 * 127 < 2^31.
  static constexpr float kSmallestInput = 1e-30F;
  static constexpr std::int64_t kMaxIntegerDepth = 65'536;
  TensorView x;                          // [T, K]
  MatmulSegment segments[kMaxSegments];  // N = sum of N_i
  std::int32_t num_segments = 0;
  TensorView out;  // [T, N]
  RowCount rows;
};

// LoRA without merging: adds scale * (x A^T) B^T to each token's row of a matmul's out, with A and
// B of the adapter that the token's sequence uses.
//
// Order of calls: the matmul; lora_shrink with the matmul's x, which makes h = x A^T; lora_expand,
// which adds to the matmul's out; then the ops that read out. Both LoRA ops cover all modules of
// the matmul (q, k and v; o; gate and up; down). gated_matmul does not expose its products, so a
// step with adapters calls matmul and gated_activation instead. A step without adapters uses a
// graph without LoRA.
//
// The tokens of a step are listed by adapter, in segments that share one adapter, and not by their
// place in the batch (LoraGrouping in device/lora_batch.h makes the list). Three things follow. An
// adapter is read once for all decodes that use it, and once for each piece of a prefill chunk.
// Blocks of GPU threads find their work without searching. Tokens without an adapter are in no
// segment and cost nothing. A result's bits depend neither on the order of the list nor on where
// segments are cut.
//
// Adapters are stored in slots of a memory region. Tables and lists hold offsets and indices, not
// addresses: if the region moves, only parameters change.

// One module of one adapter in one layer. Offsets are in bytes from LoraTable::base and are
// multiples of kAlignment.
struct LoraEntry {
  static constexpr std::int64_t kAlignment = 64;
  std::int64_t a = 0;     // A [rank, K], as in PEFT's files
  std::int64_t b = 0;     // B transposed: [rank, N_i]
  std::int32_t rank = 0;  // 0: the adapter has nothing for this module
  float scale = 0.0F;     // alpha / rank, or alpha / sqrt(rank) with rsLoRA
  // F32 [2, N_i], gains and shifts of DoRA: after the addition, out = gain out + shift.
  static constexpr std::int64_t kNoGain = std::numeric_limits<std::int64_t>::min();
  std::int64_t gain = kNoGain;
};
struct LoraTable {
  static constexpr std::int32_t kMaxModules = MatmulParams::kMaxSegments;
  static constexpr std::int32_t kMaxRank = 256;
  const void* base = nullptr;
  const LoraEntry* entries = nullptr;  // slot s and module m: entries[s * stride + m]
  std::int64_t stride = 0;
  std::int32_t num_slots = 0;
  std::int32_t num_modules = 0;  // of the matmul
  std::int32_t max_rank = 0;     // the largest of all entries; at most kMaxRank
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
// x A^T, in parts of K, so that many processors can share one adapter; lora_expand adds the parts
// up in order. Row (p, i) belongs to part p and batch.tokens[i]; module m begins at column m *
// max_rank. Columns past an entry's rank are not written.
struct LoraHidden {
  static constexpr std::int64_t kPartDepth = 2048;
  float* data = nullptr;      // [parts, H, num_modules * max_rank]
  std::int32_t parts = 0;     // parts_of(K)
  std::int32_t capacity = 0;  // H: the largest number of listed tokens
  static constexpr std::int32_t parts_of(std::int64_t depth) {
    return static_cast<std::int32_t>((depth + kPartDepth - 1) / kPartDepth);
  }
};

// h = x A^T, F32.
struct LoraShrinkParams {
  static constexpr OpId kOp{12};
  static constexpr const char* kName = "lora_shrink";

  TensorView x;  // [T, K]
  LoraTable table;
  LoraBatch batch;
  LoraHidden h;
};

// out += scale * (h B^T) in the columns of each module. The product is summed in F32 from 0, in the
// order of ranks; out is rounded once, after scaling and adding.
struct LoraExpandParams {
  static constexpr OpId kOp{13};
  static constexpr const char* kName = "lora_expand";

  LoraHidden h;
  LoraTable table;
  LoraBatch batch;
  TensorView out;                                    // [T, N] F32, N = sum of N_i
  std::int64_t widths[LoraTable::kMaxModules] = {};  // N_i, in the order of the matmul's segments
};

// One layer's part of the KV cache. The key of token `offset` of block `b`, KV head `g`, is the D
// contiguous elements at k_base + b * block_stride + g * head_stride + offset * token_stride;
// values likewise from v_base.
struct KvLayerView {
  void* k_base = nullptr;
  void* v_base = nullptr;
  DType dtype = DType::kF32;
  std::int32_t block_size = 0;
  std::int64_t block_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
};

// For each token of the step: normalizes each query and key head (if norms are given), rotates them
// (halves rotated, as in Hugging Face checkpoints), leaves the query in place and writes key and
// value to the KV cache.
struct RopeWriteKvParams {
  static constexpr OpId kOp{4};
  static constexpr const char* kName = "rope_write_kv";

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

// Causal attention of every row of the step, prefill chunk or decode, over its blocks. Query i of
// row s is at position seq_lens[s] - query_len + i and sees the positions up to its own; with a
// window it sees only the last `window` of them, its own included.
struct AttentionParams {
  static constexpr OpId kOp{5};
  static constexpr const char* kName = "attention";

  TensorView q;  // [T, >= H * D], row stride as given
  KvLayerView kv;
  const std::int32_t* cu_seqlens_q = nullptr;  // [S + 1]: first token of each row
  const std::int32_t* seq_lens = nullptr;      // [S]: context + query
  const std::int32_t* block_tables = nullptr;  // [slots, table_stride] block ids
  const std::int32_t* row_slots = nullptr;     // [S]: row of block_tables
  std::int64_t table_stride = 0;
  void* plan = nullptr;  // of this KV group; AttentionPlanSize::device_bytes long
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;  // 0 = all positions
  float scale = 0.0F;
  TensorView out;  // [T, H * D]
  RowCount seqs;
};

// The largest step that attention of one KV group will see.
struct AttentionPlanLimits {
  std::int32_t max_tokens = 0;
  std::int32_t max_seqs = 0;
  std::int32_t max_positions = 0;  // context + query of a row
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;
};

// A plan is made in host memory and copied to the start of its buffer on the device. The op uses
// the rest of that buffer for partial results.
struct AttentionPlanSize {
  std::int64_t plan_bytes = 0;    // in host memory, at a multiple of 16
  std::int64_t device_bytes = 0;  // plan_bytes or more, at a multiple of 64
};

// Host side of attention: splits the step's work into items, as plain integers. Called once for
// each step and group, before the step runs.
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
  static constexpr OpId kOp{6};
  static constexpr const char* kName = "gated_activation";

  TensorView gate_up;  // [T, 2 * F]
  TensorView out;      // [T, F]
  GatedActivation activation = GatedActivation::kSilu;
  RowCount rows;
};

// out = activation(x W_gate^T + b_gate) * (x W_up^T + b_up). A backend that needs two steps writes
// [gate | up] to scratch first; the contents of scratch are unspecified afterwards.
struct GatedMatmulParams {
  static constexpr OpId kOp{11};
  static constexpr const char* kName = "gated_matmul";

  TensorView x;        // [T, K]
  MatmulSegment gate;  // [F, K]
  MatmulSegment up;    // [F, K]
  TensorView scratch;  // [T, 2 * F]
  TensorView out;      // [T, F]
  GatedActivation activation = GatedActivation::kSilu;
  RowCount rows;

  // The two ops that compute the same.
  MatmulParams product() const { return {x, {gate, up}, 2, scratch, rows}; }
  GatedActivationParams activated() const { return {scratch, out, activation, rows}; }
};

// out[i] = in[indices[i]].
struct GatherRowsParams {
  static constexpr OpId kOp{7};
  static constexpr const char* kName = "gather_rows";

  TensorView in;                          // [T, hidden]
  const std::int32_t* indices = nullptr;  // [L]
  TensorView out;                         // [L, hidden]
  RowCount rows;                          // L
};

// Sum of `buffer` over the ranks of the tensor-parallel group, in rank order; the identity when
// world_size is 1.
struct AllReduceParams {
  static constexpr OpId kOp{8};
  static constexpr const char* kName = "all_reduce";

  TensorView buffer;  // [T, hidden]
  std::int32_t world_size = 1;
  RowCount rows;
};

// Copies whole blocks, with every layer of a group, for copy-on-write: target[i] = source[i].
struct CopyBlocksParams {
  static constexpr OpId kOp{9};
  static constexpr const char* kName = "copy_blocks";

  void* kv_base = nullptr;              // the KV region
  std::int64_t block_bytes = 0;         // a block with all its layers is contiguous
  const std::int32_t* pairs = nullptr;  // [count, 2]: source, target
  RowCount rows;                        // count
};

// How one row's token is chosen. A filter that is off keeps every token.
struct RowSampling {
  double uniform = 0.0;      // in [0, 1): the row's draw
  float temperature = 0.0F;  // 0: the best token
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
  std::int32_t slot = -1;  // index in last_tokens; negative: the host samples this row
};

// tokens[i] = last_tokens[slot] = a token drawn from logits[i]. If the logits are not all finite,
// tokens[i] is -1 and last_tokens[slot] is 0, a valid token, since a step that is already submitted
// may read it. Weights are exp((logit - best) / temperature). Three filters apply in order: weights
// of at least min_p; the top_k best; the fewest best whose weights sum to top_p of the rest. The
// lower id ranks first among equal logits. The result is the first kept token, by id, whose prefix
// sum of weights is above uniform * (sum of all kept weights).
struct SampleParams {
  static constexpr OpId kOp{10};
  static constexpr const char* kName = "sample";

  TensorView logits;                      // [L, V] F32
  const RowSampling* sampling = nullptr;  // [L]
  std::int32_t* last_tokens = nullptr;    // [slots]
  std::int32_t* tokens = nullptr;         // [L]
  RowCount rows;
};

}  // namespace sluice
