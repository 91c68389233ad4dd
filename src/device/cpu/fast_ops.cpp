#include "device/cpu/fast_ops.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/check.h"
#include "device/cpu/kernels/token_of.h"
#include "device/cpu/reference/reference_ops.h"
#include "device/cpu/row_count.h"

namespace sluice {
namespace {

// Bytes of weights in a matmul piece, which every row tile reads again. Together with the cached
// rows of x (kCachedInputBytes) they fit into a second-level cache of 1 MiB.
constexpr std::int64_t kCachedWeightBytes = 384 << 10;
// Pieces per thread: enough that one delayed thread does not delay the others.
constexpr std::int64_t kPiecesPerThread = 8;
// Rows of a gated product up to which its two steps are two ops.
constexpr std::int32_t kGatedRows = 64;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

std::int64_t row_bytes(const TensorView& matrix) { return bytes_of(matrix.dtype, matrix.dims[1]); }

}  // namespace

FastOps::FastOps(ThreadPool& pool, const kernels::KernelTable& kernels)
    : pool_(pool),
      kernels_(kernels),
      scratch_floats_(round_up(kernels::attention_scratch_floats(kernels::kMaxHeadDim), 1024)),
      code_rows_(std::make_unique<kernels::QuantizedRow[]>(kCodeRows)) {
  widened_.reset(new (std::align_val_t{
      64}) std::uint16_t[static_cast<std::size_t>(kernels::kWidenedElements * pool.size())]);
  wide_.reset(new (
      std::align_val_t{64}) float[static_cast<std::size_t>(kernels::kManyFloats * pool.size())]);
  codes_.reset(new (std::align_val_t{64}) std::int8_t[kCodeBytes]);
  ordered_.reset(new (std::align_val_t{64}) std::uint16_t[kOrderedElements]);
  lines_.reset(new (std::align_val_t{64}) std::uint8_t[kLineBytes]);
  const auto floats = static_cast<std::size_t>(scratch_floats_ * pool.size());
  scratch_.reset(new (std::align_val_t{64}) float[floats]);
  gated_.reset(
      new (std::align_val_t{64}) float[static_cast<std::size_t>(kGatedFloats * pool.size())]);
  if (kernels_.packed_matmul == nullptr) return;
  packed_.reset(new (std::align_val_t{64}) std::uint16_t[kPackedElements]);
  const auto sums = static_cast<std::size_t>(kernels::kSumFloats * pool.size());
  sums_.reset(new (std::align_val_t{64}) float[sums]);
}

void FastOps::split_rows(std::int32_t rows, std::int64_t bytes,
                         FunctionRef<void(std::int32_t, std::int32_t)> task) {
  if (rows <= 0) return;
  const auto pieces = static_cast<std::int32_t>(
      std::min<std::int64_t>({rows, bytes / kMinParallelBytes, pool_.size() * kPiecesPerThread}));
  if (pieces <= 1) return task(0, rows);
  pool_.parallel_for(pieces, [&](int i) {
    const auto at = [&](std::int64_t piece) {
      return static_cast<std::int32_t>(rows * piece / pieces);
    };
    task(at(i), at(i + 1));
  });
}

void FastOps::split_tasks(int n, bool worth_it, FunctionRef<void(int, int)> task) {
  take_tasks(n, worth_it, 0, [&](int i, int /*next*/, int worker) { task(i, worker); });
}

void FastOps::split_tasks_ahead(int n, bool worth_it, FunctionRef<void(int, int, int)> task) {
  take_tasks(n, worth_it, taken_ahead(n), task);
}

// Near the end no task is taken ahead, because another worker may be there for it sooner.
int FastOps::taken_ahead(int n) const {
  return pool_.size() == 1 ? n : n - 2 * std::min(n, pool_.size());
}

void FastOps::take_tasks(int n, bool worth_it, int ahead_until,
                         FunctionRef<void(int, int, int)> task) {
  if (!worth_it) {
    for (int i = 0; i < n; ++i) task(i, i + 1 < n ? i + 1 : -1, 0);
    return;
  }
  const auto take = [this] { return next_.fetch_add(1, std::memory_order_relaxed); };
  next_.store(0, std::memory_order_relaxed);
  pool_.parallel_for(std::min(n, pool_.size()), [&](int worker) {
    for (int i = take(); i < n;) {
      const bool ahead = i < ahead_until;
      const int next = ahead ? take() : -1;
      task(i, next < n ? next : -1, worker);
      i = ahead ? next : take();
    }
  });
}

void FastOps::execute(const EmbedParams& p) {
  const bool codes = p.table.dtype == DType::kI8;
  CHECK(codes == (p.scales.values != nullptr));
  CHECK(codes || is_blocks(p.table.dtype) ? p.out.dtype == DType::kF32
                                          : is_float(p.table.dtype) && is_float(p.out.dtype));
  CHECK(p.table.dims[1] == p.out.dims[1]);
  const std::int32_t rows = rows_in_use(p.rows);
  for (std::int32_t t = 0; t < rows; ++t) {
    const std::int32_t id = kernels::token_of(p, t);
    CHECK(id >= 0 && id < p.table.dims[0]);
  }
  split_rows(rows, rows * (row_bytes(p.table) + row_bytes(p.out)),
             [&](std::int32_t begin, std::int32_t end) { kernels_.embed(p, begin, end); });
}

void FastOps::execute(const RmsNormParams& p) {
  CHECK(p.residual.dtype == DType::kF32 && is_float(p.weight.dtype) && is_float(p.out.dtype));
  CHECK(p.add.empty() || (p.add.dtype == DType::kF32 && p.add.dims[1] == p.residual.dims[1]));
  CHECK(p.out.dims[1] == p.residual.dims[1]);
  const std::int32_t rows = rows_in_use(p.rows);
  split_rows(rows, rows * row_bytes(p.residual) * 4,
             [&](std::int32_t begin, std::int32_t end) { kernels_.rms_norm(p, begin, end); });
}

void FastOps::execute(const LayerNormParams& p) {
  CHECK(p.residual.dtype == DType::kF32 && is_float(p.weight.dtype) && is_float(p.out.dtype));
  CHECK(p.bias.empty() || p.bias.dtype == p.weight.dtype);
  CHECK(p.add.empty() || (p.add.dtype == DType::kF32 && p.add.dims[1] == p.residual.dims[1]));
  CHECK(p.out.dims[1] == p.residual.dims[1]);
  const std::int32_t rows = rows_in_use(p.rows);
  split_rows(rows, rows * row_bytes(p.residual) * 5,
             [&](std::int32_t begin, std::int32_t end) { kernels_.layer_norm(p, begin, end); });
}

void FastOps::execute(const MatmulParams& p) {
  CHECK(p.out.dtype == DType::kF32);
  CHECK(p.num_segments > 0 && p.num_segments <= MatmulParams::kMaxSegments);
  const std::int32_t rows = rows_in_use(p.rows);
  if (rows == 0) return;
  const auto used = std::span(p.segments).first(static_cast<std::size_t>(p.num_segments));
  if (std::ranges::any_of(used, [](const MatmulSegment& s) { return s.order != nullptr; })) {
    return multiply_ordered(p, rows);
  }
  const InputForm form = form_of(p.x.dtype, used[0].weight.dtype, rows);
  if (std::ranges::any_of(used, [&](const MatmulSegment& segment) {
        return form_of(p.x.dtype, segment.weight.dtype, rows) != form;
      })) {
    return multiply_each(p);
  }
  in_parts(p.x, form, rows, [&](const MatmulInput& x) { multiply(p, x); });
}

namespace {

// The most packed rows of `bytes` each in one part: as many as a second-level cache holds beside
// weights, but so many that reading the weights once for each part costs little.
std::int64_t packed_rows(std::int64_t bytes) {
  constexpr std::int64_t kCached = 1 << 20;
  constexpr std::int64_t kLeast = kernels::kPackedRows / 2;
  return std::clamp(kCached / bytes / kernels::kPackedTile * kernels::kPackedTile, kLeast,
                    std::int64_t{kernels::kPackedRows});
}

// `x` from row `first` on.
TensorView rows_from(const TensorView& x, std::int32_t first) {
  TensorView rows = x;
  rows.data =
      x.as<std::byte>() + first * x.strides[0] * static_cast<std::int64_t>(size_of(x.dtype));
  return rows;
}

}  // namespace

FastOps::InputForm FastOps::form_of(DType x, DType weight, std::int32_t rows) const {
  if (is_blocks(weight)) return InputForm::kLines;
  if (weight == DType::kI8) {
    return packs(DType::kBF16, weight, rows) ? InputForm::kPackedCodes : InputForm::kCodes;
  }
  return packs(x, weight, rows) ? InputForm::kPacked : InputForm::kAsTheyAre;
}

bool FastOps::packs(DType dtype, DType weight, std::int32_t rows) const {
  return dtype == DType::kBF16 && kernels_.packed_matmul != nullptr &&
         rows >= kernels_.packed_from && kernels_.packed_matmul(weight) != nullptr;
}

void FastOps::in_parts(const TensorView& x, InputForm form, std::int32_t rows,
                       FunctionRef<void(const MatmulInput&)> part) {
  switch (form) {
    case InputForm::kAsTheyAre: return part({.data = x.data, .stride = x.strides[0], .rows = rows});
    case InputForm::kPacked: return in_packed_parts(x, rows, part);
    case InputForm::kCodes: return in_code_parts(x, rows, false, part);
    case InputForm::kPackedCodes: return in_code_parts(x, rows, true, part);
    case InputForm::kLines: return in_line_parts(x, rows, part);
  }
}

void FastOps::in_code_parts(const TensorView& x, std::int32_t rows, bool packed,
                            FunctionRef<void(const MatmulInput&)> part) {
  CHECK(x.dims[1] <= MatmulParams::kMaxIntegerDepth);
  const std::int64_t stride = round_up(x.dims[1], kernels::kCodeAlignment);
  const std::int64_t most = packed ? packed_rows(stride) : kCodeRows;
  const auto step = static_cast<std::int32_t>(std::min(kCodeBytes / stride, most));
  for (std::int32_t first = 0; first < rows; first += step) {
    const std::int32_t count = std::min(step, rows - first);
    const TensorView some = rows_from(x, first);
    split_rows(count, count * row_bytes(x) * 2, [&](std::int32_t begin, std::int32_t end) {
      kernels_.quantize_rows(some, begin, end, codes_.get(), stride, code_rows_.get());
    });
    if (packed) {
      pack(matrix_view(codes_.get(), DType::kBF16, count, stride / 2), count);
    }
    part({.data = packed ? static_cast<const void*>(packed_.get()) : codes_.get(),
          .stride = stride,
          .quantized = code_rows_.get(),
          .packed = packed,
          .passes = !packed && kernels_.code_pass > 0 && count >= kernels::kCodePassRows,
          .first = first,
          .rows = count});
  }
}

void FastOps::in_line_parts(const TensorView& x, std::int32_t rows,
                            FunctionRef<void(const MatmulInput&)> part) {
  constexpr std::int64_t kTile = kernels::kPackedTile;
  CHECK(x.dtype == DType::kBF16 && x.dims[1] <= MatmulParams::kMaxIntegerDepth);
  const std::int64_t lines = (x.dims[1] + kernels::kLineElements - 1) / kernels::kLineElements;
  const std::int64_t bytes = lines * kernels::kLineRowBytes;
  const auto step =
      static_cast<std::int32_t>(std::min(packed_rows(bytes), kLineBytes / bytes / kTile * kTile));
  for (std::int32_t first = 0; first < rows; first += step) {
    const std::int32_t count = std::min(step, rows - first);
    const TensorView some = rows_from(x, first);
    const std::int32_t tiles = (count + kernels_.line_tile_rows - 1) / kernels_.line_tile_rows;
    const auto items = static_cast<std::int32_t>(tiles * lines);
    split_rows(items, count * row_bytes(x) * 4, [&](std::int32_t begin, std::int32_t end) {
      kernels_.pack_lines(some, count, begin, end, lines_.get());
    });
    part({.data = lines_.get(), .lines = true, .first = first, .rows = count});
  }
}

void FastOps::in_packed_parts(const TensorView& x, std::int32_t rows,
                              FunctionRef<void(const MatmulInput&)> part) {
  constexpr std::int64_t kTile = kernels::kPackedTile;
  const std::int64_t depth = round_up(x.dims[1], 2 * kTile);
  CHECK(depth * kTile <= kPackedElements);
  // Kernels that run in passes read that much of each row again and again.
  const std::int64_t again = kernels_.pass > 0 ? std::min(kernels_.pass, depth) : depth;
  const auto step = static_cast<std::int32_t>(
      std::min(packed_rows(again * 2), kPackedElements / depth / kTile * kTile));
  for (std::int32_t first = 0; first < rows; first += step) {
    const std::int32_t count = std::min(step, rows - first);
    pack(rows_from(x, first), count);
    part({.data = packed_.get(), .packed = true, .first = first, .rows = count});
  }
}

void FastOps::pack(const TensorView& x, std::int32_t rows) {
  const std::int32_t tiles = (rows + kernels::kPackedTile - 1) / kernels::kPackedTile;
  split_rows(tiles, rows * row_bytes(x) * 2, [&](std::int32_t begin, std::int32_t end) {
    kernels_.pack_rows(x, rows, begin, end, packed_.get());
  });
}

// Segments whose inputs have different forms.
void FastOps::multiply_each(const MatmulParams& p) {
  std::int64_t column = 0;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    MatmulParams one = p;
    one.segments[0] = p.segments[s];
    one.num_segments = 1;
    one.out.data = p.out.as<float>() + column;
    one.out.dims[1] = p.segments[s].weight.dims[0];
    column += one.out.dims[1];
    run(one);
  }
  CHECK(column == p.out.dims[1]);
}

// Puts the columns of x into the order of the weights first.
void FastOps::multiply_ordered(const MatmulParams& p, std::int32_t rows) {
  const std::int32_t* const order = p.segments[0].order;
  MatmulParams part = p;
  const auto segments = std::span(part.segments).first(static_cast<std::size_t>(p.num_segments));
  if (std::ranges::any_of(segments, [&](const MatmulSegment& s) { return s.order != order; })) {
    return multiply_each(p);
  }
  for (MatmulSegment& segment : segments) {
    CHECK(is_blocks(segment.weight.dtype));
    segment.order = nullptr;
  }
  CHECK(p.x.dtype == DType::kBF16 && p.x.dims[1] <= kOrderedElements);
  const std::int64_t depth = p.x.dims[1];
  const auto most = static_cast<std::int32_t>(kOrderedElements / depth);
  for (std::int32_t first = 0; first < rows; first += most) {
    const std::int32_t count = std::min(most, rows - first);
    const TensorView x = rows_from(p.x, first);
    part.x = matrix_view(ordered_.get(), DType::kBF16, count, depth);
    split_rows(count, count * row_bytes(x) * 8, [&](std::int32_t begin, std::int32_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::uint16_t* const from = x.as<std::uint16_t>() + row * x.strides[0];
        std::uint16_t* const to = ordered_.get() + row * depth;
        for (std::int64_t k = 0; k < depth; ++k) to[k] = from[order[k]];
      }
    });
    part.out = rows_from(p.out, first);
    part.rows = {nullptr, count};
    execute(part);
  }
}

void FastOps::multiply(const MatmulParams& p, const MatmulInput& x) {
  std::int64_t column = 0;
  std::int64_t bytes = 0;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const TensorView& weight = p.segments[s].weight;
    CHECK(weight.dims[1] == p.x.dims[1]);
    column += weight.dims[0];
    bytes += weight.dims[0] * row_bytes(weight);
  }
  CHECK(column == p.out.dims[1]);
  // A product with many rows computes long on little memory.
  const bool shared = bytes * std::max(1, x.rows / 8) >= kMinParallelBytes;

  // All segments in one task: threads are woken and waited for once.
  std::array<SegmentPieces, MatmulParams::kMaxSegments> segments;
  const auto used = std::span(segments).first(static_cast<std::size_t>(p.num_segments));
  int pieces = 0;
  column = 0;
  for (std::size_t s = 0; s < used.size(); ++s) {
    used[s] = cut_segment(p, p.segments[s], column, x, shared);
    used[s].first = pieces;
    pieces += used[s].count;
    column += p.segments[s].weight.dims[0];
  }
  for (SegmentPieces& segment : used) {
    if (segment.has_rest()) segment.rest = pieces++;
  }
  const auto place_of = [&](int i) {
    std::size_t s = 0;
    while (!used[s].has(i)) ++s;
    return std::pair(s, used[s].column_of(i));
  };
  const auto run = [&](int i, int next_task, int worker) {
    const auto [s, col] = place_of(i);
    kernels::MatmulPiece piece = used[s].whole;
    piece.col_begin = col;
    piece.col_end = std::min(piece.col_end, col + used[s].cols);
    if (next_task >= 0) {
      const auto [next, next_col] = place_of(next_task);
      const TensorView& weight = p.segments[next].weight;
      if (weight.dtype == p.segments[s].weight.dtype && weight.strides[0] == piece.weight_stride) {
        piece.next_weight =
            weight.as<std::byte>() + next_col * bytes_of(weight.dtype, weight.strides[0]);
      }
    }
    give_scratch(worker, x, piece);
    used[s].kernel(piece);
  };
  take_tasks(pieces, shared, fetches_next(x) ? taken_ahead(pieces) : 0, run);
}

void FastOps::give_scratch(int worker, const MatmulInput& x, kernels::MatmulPiece& piece) {
  piece.scratch = widened_.get() + worker * kernels::kWidenedElements;
  piece.wide = wide_.get() + worker * kernels::kManyFloats;
  if (x.packed) piece.sums = sums_.get() + worker * kernels::kSumFloats;
}

bool FastOps::fetches_next(const MatmulInput& x) const {
  return x.packed ? kernels_.packed_fetches_next : x.quantized != nullptr;
}

kernels::MatmulKernel FastOps::matmul_kernel(DType x, DType weight) const {
  kernels::MatmulKernel kernel = nullptr;
  if (weight == DType::kI8) {
    if (is_float(x)) kernel = kernels_.matmul_i8_i8;
  } else if (x == DType::kF32) {
    if (weight == DType::kF32) kernel = kernels_.matmul_f32_f32;
    if (weight == DType::kF16) kernel = kernels_.matmul_f32_f16;
    if (weight == DType::kBF16) kernel = kernels_.matmul_f32_bf16;
    if (weight == DType::kF8E4M3) kernel = kernels_.matmul_f32_f8;
  } else if (x == DType::kBF16 && weight == DType::kBF16) {
    kernel = kernels_.matmul_bf16_bf16;
  } else if (x == DType::kBF16 && weight == DType::kF8E4M3) {
    kernel = kernels_.matmul_bf16_f8;
  }
  CHECK(kernel != nullptr);
  return kernel;
}

std::int64_t FastOps::columns_multiple(const MatmulInput& x) const {
  return x.packed ? kernels_.packed_cols : 2 * kernels::kPackedTile;
}

std::int64_t FastOps::piece_columns(const TensorView& weight, std::int64_t all,
                                    const MatmulInput& x, bool shared) const {
  // Each piece in passes packs the rows of x.
  const std::int64_t pieces = pool_.size() * (x.passes ? kPiecesPerThread / 2 : kPiecesPerThread);
  const std::int64_t share = shared ? all / pieces : all;
  if (x.packed || x.lines) {
    // Each piece reads all packed rows.
    const std::int64_t most = std::max<std::int64_t>(1, 2 * share);
    const std::int64_t multiple = columns_multiple(x);
    return std::min(round_up(most, multiple), kernels::kPackedCols / multiple * multiple);
  }
  // At most what stays in the cache, and enough pieces for all threads.
  std::int64_t row = row_bytes(weight);
  if (x.quantized != nullptr && kernels_.code_pass > 0) {
    row = std::min(row, bytes_of(weight.dtype, kernels_.code_pass));
  }
  const std::int64_t cached = kCachedWeightBytes / std::max<std::int64_t>(1, row);
  return round_up(std::max<std::int64_t>(1, std::min(cached, share)), kernels_.matmul_cols);
}

FastOps::SegmentPieces FastOps::cut_segment(const MatmulParams& p, const MatmulSegment& segment,
                                            std::int64_t column, const MatmulInput& x,
                                            bool shared) const {
  const TensorView& weight = segment.weight;
  SegmentPieces result;
  result.kernel = x.lines    ? kernels_.quantized_matmul(weight.dtype)
                  : x.packed ? kernels_.packed_matmul(weight.dtype)
                             : matmul_kernel(p.x.dtype, weight.dtype);
  CHECK(result.kernel != nullptr);
  CHECK(segment.bias.empty() || is_float(segment.bias.dtype));
  CHECK((segment.scales.values != nullptr) == has_scales(weight.dtype));
  CHECK((weight.dtype == DType::kI8) == (x.quantized != nullptr));
  CHECK(!is_blocks(weight.dtype) || weight.dims[1] <= MatmulParams::kMaxIntegerDepth);
  CHECK(weight.dtype != DType::kI8 || segment.scales.block_cols >= weight.dims[1]);
  const std::int64_t cols = weight.dims[0];
  result.whole = {.x = x.data,
                  .x_stride = x.stride,
                  .x_rows = x.quantized,
                  .weight = weight.data,
                  .weight_stride = weight.strides[0],
                  .scales = segment.scales,
                  .bias = segment.bias.data,
                  .bias_dtype = segment.bias.dtype,
                  .out = static_cast<float*>(p.out.data) + x.first * p.out.strides[0] + column,
                  .out_stride = p.out.strides[0],
                  .depth = weight.dims[1],
                  .row_begin = 0,
                  .row_end = x.rows,
                  .col_begin = 0,
                  .col_end = cols};
  result.cols = piece_columns(weight, p.out.dims[1], x, shared);
  result.count = static_cast<int>(cols / result.cols);
  return result;
}

void FastOps::execute(const RopeWriteKvParams& p) {
  CHECK(p.qkv.dtype == DType::kF32 && is_float(p.kv.dtype));
  CHECK(p.rotary_dim % 2 == 0 && p.rotary_dim <= p.head_dim);
  const std::int32_t rows = rows_in_use(p.rows);
  split_rows(rows, rows * row_bytes(p.qkv) * 2,
             [&](std::int32_t begin, std::int32_t end) { kernels_.rope_write_kv(p, begin, end); });
}

void FastOps::execute(const AttentionParams& p) {
  CHECK(p.q.dtype == DType::kF32 && is_float(p.out.dtype) && is_float(p.kv.dtype));
  CHECK(p.head_dim > 0 && p.head_dim <= kernels::kMaxHeadDim);
  CHECK(p.num_kv_heads > 0 && p.num_heads % p.num_kv_heads == 0);
  const auto* plan = static_cast<const AttentionPlan*>(p.plan);
  if (rows_in_use(p.seqs) == 0) return;
  const AttentionHeads heads(p.num_heads, p.num_kv_heads);
  const std::int64_t bytes = plan->total_keys * p.num_kv_heads * p.head_dim *
                             static_cast<std::int64_t>(2 * size_of(p.kv.dtype));
  const auto piece_of = [&](int task) -> kernels::AttentionPiece {
    const AttentionItem& item = plan->items[task / heads.pieces];
    const std::int32_t index = task % heads.pieces;
    const std::int32_t kv_head = index / heads.pieces_per_group;
    const std::int32_t first = index % heads.pieces_per_group * heads.per_piece;
    return {.seq = item.seq,
            .first_query = item.first_query,
            .num_queries = item.num_queries,
            .first_head = kv_head * heads.per_group + first,
            .num_heads = std::min(heads.per_piece, heads.per_group - first),
            .kv_head = kv_head,
            .first_key = item.first_key,
            .end_key = item.end_key};
  };
  split_tasks_ahead(plan->num_items * heads.pieces, bytes >= kMinParallelBytes,
                    [&](int task, int next_task, int worker) {
                      const AttentionItem& item = plan->items[task / heads.pieces];
                      kernels::AttentionPiece piece = piece_of(task);
                      kernels::AttentionPiece next;
                      if (next_task >= 0) {
                        next = piece_of(next_task);
                        piece.next = &next;
                      }
                      piece.scratch = scratch_.get() + worker * scratch_floats_;
                      if (!item.is_cut()) return kernels_.attention(p, piece);
                      add_part(p, item, piece, task % heads.pieces);
                    });
}

// The thread that finishes the last part of a piece adds up its spans.
void FastOps::add_part(const AttentionParams& p, const AttentionItem& item,
                       kernels::AttentionPiece piece, std::int32_t index) {
  auto* const plan = static_cast<std::byte*>(p.plan);
  const auto* const header = static_cast<const AttentionPlan*>(p.plan);
  auto* const counters = reinterpret_cast<std::int32_t*>(plan + header->counters_offset);
  auto* const partials = reinterpret_cast<float*>(plan + header->partials_offset);
  const std::int64_t span_floats =
      kernels::span_sums_floats(piece.num_queries * piece.num_heads, p.head_dim);
  const std::int64_t rows_before =
      item.first_partial + std::int64_t{item.num_spans} * item.num_queries * piece.first_head;
  float* const spans = partials + kernels::span_sums_floats(rows_before, p.head_dim);
  const auto span_of = [](std::int32_t key) { return key / kernels::kAttentionSpan; };
  piece.spans = spans + (span_of(piece.first_key) - item.first_span) * span_floats;
  kernels_.attention(p, piece);
  const std::int32_t done = span_of(piece.end_key - 1) + 1 - span_of(piece.first_key);
  const std::atomic_ref<std::int32_t> counter(counters[item.first_counter + index]);
  if (counter.fetch_add(done, std::memory_order_acq_rel) + done < item.num_spans) return;
  counter.store(0, std::memory_order_relaxed);
  piece.spans = spans;
  piece.first_key = item.first_span * kernels::kAttentionSpan;
  piece.end_key = (item.first_span + item.num_spans) * kernels::kAttentionSpan;
  kernels_.add_attention_spans(p, piece);
}

void FastOps::execute(const GatedActivationParams& p) {
  CHECK(p.gate_up.dtype == DType::kF32 && is_float(p.out.dtype));
  CHECK(p.gate_up.dims[1] == 2 * p.out.dims[1]);
  const std::int32_t rows = rows_in_use(p.rows);
  // exp costs more than memory here.
  split_rows(rows, rows * row_bytes(p.gate_up) * 4, [&](std::int32_t begin, std::int32_t end) {
    kernels_.gated_activation(p, begin, end);
  });
}

// For few rows the products are small beside the weights. For many, they are activated while they
// are in a cache.
void FastOps::execute(const GatedMatmulParams& p) {
  const std::int32_t rows = rows_in_use(p.rows);
  const InputForm form = form_of(p.x.dtype, p.gate.weight.dtype, rows);
  const bool alike = form_of(p.x.dtype, p.up.weight.dtype, rows) == form;
  const bool ordered = p.gate.order != nullptr || p.up.order != nullptr;
  // Kernels of other forms are slow with few columns.
  const bool narrow =
      form == InputForm::kPacked || form == InputForm::kPackedCodes || form == InputForm::kLines;
  if (rows <= kGatedRows || ordered || !alike || !narrow) {
    run(p.product());
    run(p.activated());
    return;
  }
  CHECK(is_float(p.out.dtype));
  in_parts(p.x, form, rows, [&](const MatmulInput& x) { multiply_gated(p, x); });
}

void FastOps::multiply_gated(const GatedMatmulParams& p, const MatmulInput& x) {
  const std::int64_t cols = p.out.dims[1];
  const MatmulParams product = p.product();
  const SegmentPieces gate = cut_segment(product, p.gate, 0, x, true);
  const SegmentPieces up = cut_segment(product, p.up, cols, x, true);
  const TensorView out = rows_from(p.out, x.first);
  const kernels::GatedKernel kernel = gated_kernel(p, x);
  const std::int64_t multiple = columns_multiple(x);
  const std::int64_t most = kGatedCols / multiple * multiple;
  const auto tasks = static_cast<int>((cols + most - 1) / most);
  const int ahead = fetches_next(x) ? taken_ahead(tasks) : 0;
  take_tasks(tasks, true, ahead, [&](int task, int next, int worker) {
    kernels::GatedPiece piece{gate.whole, up.whole, out, p.activation};
    for (kernels::MatmulPiece* const half : {&piece.gate, &piece.up}) {
      half->col_begin = task * most;
      half->col_end = std::min(cols, half->col_begin + most);
      give_scratch(worker, x, *half);
      if (next < 0) continue;
      half->next_weight = static_cast<const std::byte*>(half->weight) +
                          next * most * bytes_of(p.gate.weight.dtype, half->weight_stride);
    }
    if (kernel != nullptr) return kernel(piece);
    float* const products = gated_.get() + worker * kGatedFloats;
    const std::int64_t begin = piece.gate.col_begin;
    const std::int64_t n = piece.gate.col_end - begin;
    piece.gate.out = products - begin;
    piece.up.out = products + n - begin;
    piece.gate.out_stride = piece.up.out_stride = kGatedStride;
    gate.kernel(piece.gate);
    up.kernel(piece.up);
    piece.out.data = out.as<std::byte>() + begin * static_cast<std::int64_t>(size_of(out.dtype));
    piece.out.dims[1] = n;
    kernels_.gated_activation({matrix_view(products, DType::kF32, x.rows, 2 * n, kGatedStride),
                               piece.out,
                               p.activation,
                               {}},
                              0, x.rows);
  });
}

kernels::GatedKernel FastOps::gated_kernel(const GatedMatmulParams& p, const MatmulInput& x) const {
  const TensorView& weight = p.gate.weight;
  const bool alike =
      weight.dtype == p.up.weight.dtype && weight.strides[0] == p.up.weight.strides[0];
  const bool biased = !p.gate.bias.empty() || !p.up.bias.empty();
  if (!x.packed || !alike || biased || kernels_.gated_matmul == nullptr) return nullptr;
  return kernels_.gated_matmul(weight.dtype);
}

void FastOps::execute(const GatherRowsParams& p) {
  CHECK(is_float(p.in.dtype) && is_float(p.out.dtype) && p.in.dims[1] == p.out.dims[1]);
  const std::int32_t rows = rows_in_use(p.rows);
  for (std::int32_t i = 0; i < rows; ++i) {
    CHECK(p.indices[i] >= 0 && p.indices[i] < p.in.dims[0]);
  }
  split_rows(rows, rows * (row_bytes(p.in) + row_bytes(p.out)),
             [&](std::int32_t begin, std::int32_t end) { kernels_.gather_rows(p, begin, end); });
}

void FastOps::execute(const AllReduceParams& p) {
  // With one rank the buffer holds the sum already.
  CHECK(p.world_size == 1);
}

void FastOps::execute(const CopyBlocksParams& p) {
  auto* base = static_cast<std::byte*>(p.kv_base);
  const std::int32_t rows = rows_in_use(p.rows);
  split_rows(rows, rows * p.block_bytes * 2, [&](std::int32_t begin, std::int32_t end) {
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int64_t source = p.pairs[2 * i];
      const std::int64_t target = p.pairs[2 * i + 1];
      if (source == target) continue;
      std::memcpy(base + target * p.block_bytes, base + source * p.block_bytes,
                  static_cast<std::size_t>(p.block_bytes));
    }
  });
}

// On the CPU the engine samples on the host (Sampler); only tests run this op.
void FastOps::execute(const SampleParams& p) { ReferenceOps().run(p); }

AttentionPlanSize FastOps::attention_plan_size(const AttentionPlanLimits& limits) const {
  return sluice::attention_plan_size(limits);
}

std::int64_t FastOps::plan_attention(const AttentionPlanParams& p) {
  return write_attention_plan(p, pool_.size());
}

Work FastOps::attention_work(const AttentionPlanParams& p) const {
  return sluice::attention_work(p, kernels_.lanes);
}

}  // namespace sluice
