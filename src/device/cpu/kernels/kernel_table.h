// KernelTable: the kernels of one instruction set as plain function pointers, which FastOps calls
// on pieces of an op. A kernel computes each output by the same sequence of operations wherever the
// output is in its piece, so results do not depend on how the op was split.
// Values: constant tables; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/kernels/inline.h"
#include "device/op_params.h"

namespace sluice::kernels {

// A row of x in INT8: its scale, and the sum of its codes.
struct QuantizedRow {
  float scale = 0.0F;
  std::int32_t sum = 0;
};
// Rows of codes begin at multiples of this many, and have zeros behind their last element.
inline constexpr std::int64_t kCodeAlignment = 64;

// Elements along K of a row of x that share a scale, for products with weights in blocks, and their
// bytes when they are packed (quantized_input.h).
inline constexpr std::int64_t kLineElements = 32;
inline constexpr std::int64_t kLineRowBytes = 52;

// Scratch memory of products with a weight in FP8 or blocks: 6 widened columns of the largest
// depth, or a panel of codes (quantized_panels.h).
inline constexpr std::int64_t kWidenedElements = 6 * MatmulParams::kMaxIntegerDepth;

// Scratch memory of products of many rows (matmul_many.h), in floats: widened rows of x, one pass
// along K of a tile of columns, and sums of at most kManySums rows.
inline constexpr std::int64_t kManyInput = 256 << 10;
inline constexpr std::int64_t kManyPass = 1024;
inline constexpr std::int64_t kManyWeight = 6 * (kManyPass + 16);
inline constexpr std::int64_t kManySums = 240;  // whole register tiles
inline constexpr std::int64_t kManySumFloats = kManySums * 6 * 16;
inline constexpr std::int64_t kManyFloats = kManyInput + kManyWeight + kManySumFloats;

// Products of BF16 in pairs (panel_tile.h) run in passes along K of this many elements.
inline constexpr std::int64_t kPairsPass = 1024;

// Products of INT8 take panels of columns (quad_products.h) from this many rows on. Fewer read
// columns where they lie (codes_in_place.h).
inline constexpr std::int32_t kCodePassRows = 33;

// The most rows and columns of a piece of packed_matmul, and its sums.
inline constexpr std::int32_t kPackedRows = 512;
inline constexpr std::int64_t kPackedCols = 512;
inline constexpr std::int64_t kSumFloats = kPackedRows * kPackedCols;
// The rows of a tile of packed rows.
inline constexpr std::int32_t kPackedTile = 16;

// Rows [row_begin, row_end) and columns [col_begin, col_end) of x W^T + bias. Strides in elements.
struct MatmulPiece {
  const void* x = nullptr;
  std::int64_t x_stride = 0;
  const QuantizedRow* x_rows = nullptr;  // of x in INT8
  const void* weight = nullptr;
  std::int64_t weight_stride = 0;
  BlockScales scales;          // of a weight in FP8 or INT8
  const void* bias = nullptr;  // or none
  DType bias_dtype = DType::kF32;
  std::uint16_t* scratch = nullptr;  // kWidenedElements, for weights in blocks and FP8
  float* wide = nullptr;             // kManyFloats, for products of many rows in F32
  float* sums = nullptr;             // kSumFloats, for packed_matmul
  float* out = nullptr;
  std::int64_t out_stride = 0;
  std::int64_t depth = 0;
  std::int32_t row_begin = 0;
  std::int32_t row_end = 0;
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;
  // The first column of the piece that the same thread computes next, if it is known: kernels may
  // fetch its first columns, which have the same stride.
  const void* next_weight = nullptr;
};
using MatmulKernel = void (*)(const MatmulPiece&);

// The same columns of gate and up, from the same rows of x, without biases: activated products.
// Rows of both weights have one stride.
struct GatedPiece {
  MatmulPiece gate;
  MatmulPiece up;
  TensorView out;  // from row row_begin on, all columns
  GatedActivation activation = GatedActivation::kSilu;
};
using GatedKernel = void (*)(const GatedPiece&);

// Some query heads of one KV head, for some query tokens of one row.
struct AttentionPiece {
  std::int32_t seq = 0;
  std::int32_t first_query = 0;  // within the row's query tokens
  std::int32_t num_queries = 0;
  std::int32_t first_head = 0;
  std::int32_t num_heads = 0;  // num_queries * num_heads <= kMaxAttentionRows
  std::int32_t kv_head = 0;
  // Positions of the keys to be added up: of all that a query sees, or of some spans.
  std::int32_t first_key = 0;
  std::int32_t end_key = 0;
  // Null: the sums of all keys are the output. Else the sums of each span are written here, from
  // that of first_key on, span_sums_floats() for each, or read from here.
  float* spans = nullptr;
  float* scratch = nullptr;  // attention_scratch_floats(head_dim), 64-byte aligned
  // The piece that the same thread computes next, if it is known: kernels may fetch its first keys.
  const AttentionPiece* next = nullptr;
};
// Keys of one tile. Tiles start at multiples of it, counted from position 0; so do spans, whose
// sums are added up in order (attention_totals.h).
inline constexpr std::int32_t kAttentionTile = 64;
inline constexpr std::int32_t kAttentionSpan = 1024;
static_assert(kAttentionSpan % kAttentionTile == 0);
inline constexpr std::int32_t kMaxAttentionRows = 128;
inline constexpr std::int32_t kMaxHeadDim = 512;
inline constexpr std::int32_t kMaxLanes = 16;

// Heads padded to whole vectors of 16-bit elements.
SLUICE_INLINE constexpr std::int64_t padded_head(std::int64_t head_dim) {
  return (head_dim + 2 * kMaxLanes - 1) / (2 * kMaxLanes) * (2 * kMaxLanes);
}
// Weighted values, maximum and sum of weights of each row, of one span or of all.
SLUICE_INLINE constexpr std::int64_t span_sums_floats(std::int64_t rows, std::int64_t head_dim) {
  return rows * (padded_head(head_dim) + 2);
}
// K tile, V tile, queries, outputs, scores, and maximum, sum and factor of each row; totals.
SLUICE_INLINE constexpr std::int64_t attention_scratch_floats(std::int64_t head_dim) {
  return padded_head(head_dim) * (2 * kAttentionTile + 2 * kMaxAttentionRows) +
         std::int64_t{kMaxAttentionRows} * kAttentionTile + 3 * kMaxAttentionRows +
         span_sums_floats(kMaxAttentionRows, head_dim);
}

// Columns [col_begin, col_end) of one module, for some tokens that share an adapter. Strides in
// elements.
struct LoraExpandPiece {
  const float* h = nullptr;  // of the first token's first part
  std::int64_t h_stride = 0;
  std::int64_t part_stride = 0;
  std::int32_t parts = 0;
  std::int32_t count = 0;
  const std::int32_t* tokens = nullptr;  // [count]: rows of out
  const void* b = nullptr;               // [rank, b_stride]
  DType dtype = DType::kF32;
  std::int64_t b_stride = 0;
  std::int32_t rank = 0;
  float scale = 0.0F;
  float* out = nullptr;  // the module's first column
  std::int64_t out_stride = 0;
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;
};

struct KernelTable {
  // By dtype of x, then of the weight.
  MatmulKernel matmul_f32_f32;
  MatmulKernel matmul_f32_f16;
  MatmulKernel matmul_f32_bf16;
  MatmulKernel matmul_f32_f8;
  MatmulKernel matmul_bf16_bf16;
  MatmulKernel matmul_bf16_f8;  // null where products with FP8 take x in F32
  MatmulKernel matmul_i8_i8;
  // Products of x packed by pack_lines with weights in blocks, by dtype of the weight.
  MatmulKernel (*quantized_matmul)(DType weight);
  // Products of x in BF16 whose rows were packed, by dtype of the weight: a null function, or a
  // null kernel, where rows are taken as they are.
  MatmulKernel (*packed_matmul)(DType weight);
  // Gated products of packed rows, by dtype of both weights: a null function, or a null kernel,
  // where products are computed first and activated then.
  GatedKernel (*gated_matmul)(DType weight);
  // Packs tiles [begin, end) of kPackedTile rows of x, which has `rows` rows, to `packed`, which is
  // of all rows: as many elements as whole tiles of 16 rows by 32 elements have. x is in BF16; two
  // codes of INT8 count as one element.
  void (*pack_rows)(const TensorView& x, std::int32_t rows, std::int32_t begin, std::int32_t end,
                    std::uint16_t* packed);
  // The fewest rows that packed_matmul multiplies. Where it multiplies all rows, bits may differ
  // from those of the kernels above; else they are the same.
  std::int32_t packed_from;
  // Whether it and gated_matmul fetch MatmulPiece::next_weight.
  bool packed_fetches_next;
  // Its pieces have a multiple of this many columns, which is that of a tile.
  std::int32_t packed_cols;
  // Other pieces have a multiple of this many columns, which is a multiple of every tile's width,
  // so that few tiles are narrow.
  std::int32_t matmul_cols;
  // The elements along K of a pass of products of x in BF16; 0: these run along all of K at once.
  std::int64_t pass;
  // The same of x in INT8; a piece gets as many columns as if each had no more elements than that.
  std::int64_t code_pass;
  std::int32_t lanes;  // floats in a vector: the number of keys that attention scores at once
  // Quantizes rows [begin, end) of x, as MatmulSegment says. `codes` and `rows` are of row 0.
  void (*quantize_rows)(const TensorView& x, std::int32_t begin, std::int32_t end,
                        std::int8_t* codes, std::int64_t stride, QuantizedRow* rows);
  // Quantizes and packs lines of x in BF16, which has `rows` rows, for products with weights in
  // blocks: those along K of each tile of line_tile_rows rows follow each other, and [begin, end)
  // of them all are packed.
  void (*pack_lines)(const TensorView& x, std::int32_t rows, std::int64_t begin, std::int64_t end,
                     std::uint8_t* packed);
  std::int32_t line_tile_rows;
  // Rows [begin, end) each.
  void (*embed)(const EmbedParams&, std::int32_t begin, std::int32_t end);
  void (*rms_norm)(const RmsNormParams&, std::int32_t begin, std::int32_t end);
  void (*layer_norm)(const LayerNormParams&, std::int32_t begin, std::int32_t end);
  void (*rope_write_kv)(const RopeWriteKvParams&, std::int32_t begin, std::int32_t end);
  void (*gated_activation)(const GatedActivationParams&, std::int32_t begin, std::int32_t end);
  void (*gather_rows)(const GatherRowsParams&, std::int32_t begin, std::int32_t end);
  void (*attention)(const AttentionParams&, const AttentionPiece&);
  // Adds up the spans of a piece and writes the output.
  void (*add_attention_spans)(const AttentionParams&, const AttentionPiece&);
  void (*lora_expand)(const LoraExpandPiece&);
};

// Each may be called only where available_cpu_isas() names the instruction set.
const KernelTable& avx2_kernels();
const KernelTable& avx2_vnni_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512_vnni_kernels();
const KernelTable& avx512_bf16_kernels();
const KernelTable& avx512_bf16_fma_kernels();
const KernelTable& amx_kernels();

}  // namespace sluice::kernels
