// Products with weights in blocks (tensor/dtype.h) whose inputs are in INT8 (quantized_input.h).
// The products of a line, 32 elements along K of a row of x and of a column, are integers, and
// their sum is exact. It is scaled and added to a sum in F32 by one fused multiply-add for each
// line, in order (quantized_weights.h; MatmulParams has the order of roundings). So bits depend
// neither on the instruction set nor on how an op is split.
//
// A tile of columns, one in each lane, takes a line at a time: vectors of four bytes of each column
// are multiplied by four codes of a row of x in every lane, so no lanes have to be added.
//
// `B`: how an instruction set reads bytes of columns and multiplies them (bytes_*.h). `W`: the type
// of the weight (quantized_weights.h). Included by kernels_*.cpp only; see simd_avx512.h.
#pragma once

#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/prefetch.h"
#include "device/cpu/kernels/quantized_input.h"
#include "device/cpu/kernels/quantized_panels.h"
#include "device/cpu/kernels/quantized_weights.h"

namespace sluice::kernels {

// Fetches a line, and into the second-level cache what comes later: memory answers late.
SLUICE_INLINE static void fetch_lines(const std::uint8_t* p) {
  constexpr std::int64_t kLater = 16 << 10;
  prefetch_near(p);
  prefetch_second(p + kLater);
}

// B::multiply() of a set that adds up products of bytes in 16 bits.
template <class B, int bits, int quads, class X>
SLUICE_INLINE typename B::V multiply_in_pairs(const typename B::V* codes, const X& x, int first,
                                              typename B::V start) {
  // Sums in 16 bits are at most 8 times 2 * 15 * 127, 4 times 2 * 31 * 127, 2 times 2 * 63 * 127,
  // or 2 * 128 * 127.
  constexpr int kMost = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
  constexpr int kTogether = kMost < quads ? kMost : quads;
#pragma GCC unroll 8
  for (int q = 0; q < quads; q += kTogether) {
    auto pairs = B::template pairs_of<bits>(codes[q], B::set1(x.quad(first + q)));
#pragma GCC unroll 8
    for (int i = 1; i < kTogether; ++i) {
      pairs = B::add_pairs(
          pairs, B::template pairs_of<bits>(codes[q + i], B::set1(x.quad(first + q + i))));
    }
    start = B::add_sums_of_pairs(start, pairs);
  }
  return start;
}

// width: rows of x, of which some may be zeros whose sums are not stored.
template <class B, class W, int width>
struct QuantizedTile {
  using S = typename B::Simd;
  using F = typename S::F;
  using V = typename B::V;
  using Columns = ColumnsOfBytes<B::kCols>;
  static constexpr int kCols = B::kCols;
  static constexpr ElementBlock kBlock = block_of(W::kDType);
  // A group: the lines whose scales are read together.
  static constexpr std::int64_t kGroupBytes = CopiedGroup<B, W>::kBytes;
  static constexpr std::int64_t kFetched = kCols * kGroupBytes / W::kLines;  // for each line
  static_assert(kCols * kGroupBytes % W::kLines == 0);

  // Columns [col, col + cols), with the first `rows` rows of x, packed at `x`. Meanwhile fetches
  // the memory at `ahead`, as much as it reads, or nothing.
  static void run(const MatmulPiece& p, const std::uint8_t* x, std::int64_t lines, int rows,
                  std::int64_t col, int cols, const std::uint8_t* ahead) {
    const std::int64_t stride = p.weight_stride / kBlock.elements * kBlock.bytes;
    const std::uint8_t* first = static_cast<const std::uint8_t*>(p.weight) + col * stride;
    typename B::Constants constants;
    F sums[width];
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) sums[r] = S::zero();
    std::int64_t line = 0;
    if (cols == kCols) {
      Columns w(first, stride);
      for (; line + W::kLines <= lines; line += W::kLines) {
        add_group(constants, w, W::kLines, x, ahead, sums);
        w.step(kGroupBytes);
      }
    }
    for (; line < lines; line += W::kLines) {
      const std::int64_t left = lines - line;
      const int count = left < W::kLines ? static_cast<int>(left) : W::kLines;
      const CopiedGroup<B, W> group(first + line / W::kLines * kGroupBytes, stride, cols, count);
      add_group(constants, group.columns(), count, x, ahead, sums);
    }
    SumsOfTile<B>{p.out + col, p.out_stride, rows, cols}.store(sums);
  }

  // A panel of columns, with a tile of rows.
  static void run(const typename QuantizedPanels<B, W>::Task& task) {
    F sums[width];
    task.begin(sums);
    const std::uint8_t* x = task.x;
    const std::uint8_t* none = nullptr;
    for (int line = 0; line < task.lines; ++line) {
      V codes[kLineQuads];
#pragma GCC unroll 8
      for (int q = 0; q < kLineQuads; ++q) {
        codes[q] = B::load(task.panel.codes[line] + q * kCols);
      }
      add_line(task.panel.groups[line / W::kLines], line % W::kLines, codes, x, none, sums);
      if (line % 2 != 0) task.fetch.fetch();
    }
    task.place.store(sums);
  }

 private:
  // The first `count` lines of a group; goes on along x.
  SLUICE_INLINE static void add_group(const typename B::Constants& constants, const Columns& w,
                                      int count, const std::uint8_t*& x, const std::uint8_t*& ahead,
                                      F (&sums)[width]) {
    typename W::Group group;
    W::read_group(constants, w, group);
    for (int first = 0; first < count; first += W::kTogether) {
      V codes[W::kTogether][kLineQuads];
      W::read_codes(group, w, first, codes);
      if constexpr (W::kTogether <= 2) {
#pragma GCC unroll 4
        for (int i = 0; i < W::kTogether; ++i) {
          if (first + i < count) add_line(group, first + i, codes[i], x, ahead, sums);
        }
      } else {
        // One line after the other, from memory: the compiler would mix them, and have more values
        // under way than registers.
        for (int i = 0; i < W::kTogether && first + i < count; ++i) {
          add_line(group, first + i, codes[i], x, ahead, sums);
        }
      }
    }
  }

  SLUICE_INLINE static void add_line(const typename W::Group& group, int line,
                                     const V (&codes)[kLineQuads], const std::uint8_t*& x,
                                     const std::uint8_t*& ahead, F (&sums)[width]) {
    // Lines of the cache evenly: too many at once would wait for each other.
    if (ahead != nullptr) {
#pragma GCC unroll 16
      for (std::int64_t at = 0; at < kFetched; at += 64) fetch_lines(ahead + at);
      ahead += kFetched;
    }
    V of_line[kLineQuads];
#pragma GCC unroll 8
    for (int q = 0; q < kLineQuads; ++q) of_line[q] = codes[q];
#pragma GCC unroll 16
    for (int r = 0; r < width; ++r) {
      const InputLine<width> of_row(x, r);
      constexpr int kRunQuads = kLineQuads / W::kRuns;
      F products[W::kRuns];
#pragma GCC unroll 2
      for (int run = 0; run < W::kRuns; ++run) {
        products[run] = B::to_float(B::template multiply<W::kBits, kRunQuads>(
            of_line + run * kRunQuads, of_row, run * kRunQuads,
            W::offset(group, line, run, of_row)));
      }
      sums[r] = W::add(group, line, products, of_row, sums[r]);
    }
    x += width * kLineRowBytes;
  }
};

// Calls f.operator()<width>() with a width of packed tiles (tile_width).
template <int most, class Function>
SLUICE_INLINE void with_width(int width, const Function& f) {
  constexpr auto at_most = [](int rows) { return rows < most ? rows : most; };
  switch (width) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    case 3: return f.template operator()<3>();
    case 4: return f.template operator()<4>();
    case 6: return f.template operator()<at_most(6)>();
    case 8: return f.template operator()<at_most(8)>();
    case 12: return f.template operator()<at_most(12)>();
    default: return f.template operator()<most>();
  }
}

// A tile of rows reads columns where they lie; more rows share panels of them.
template <class B, class W>
void matmul_quantized(const MatmulPiece& p) {
  using S = typename B::Simd;
  constexpr int kCols = B::kCols;
  constexpr int kRows = B::kRows;
  if (p.row_end > kRows) {
    using Panels = QuantizedPanels<B, W>;
    Panels(p).run(
        (p.row_end + kRows - 1) / kRows, [](const typename Panels::Task& task, int width) {
          with_width<kRows>(width, [&]<int rows>() { QuantizedTile<B, W, rows>::run(task); });
        });
    if (p.bias != nullptr) add_bias<S>(p);
    return;
  }
  constexpr ElementBlock kBlock = block_of(W::kDType);
  const QuantizedInput<kRows> x(p.x, p.depth, p.row_end);
  const std::int64_t stride = p.weight_stride / kBlock.elements * kBlock.bytes;
  for (std::int64_t col = p.col_begin; col < p.col_end; col += kCols) {
    const std::int64_t left = p.col_end - col;
    const int cols = left < kCols ? static_cast<int>(left) : kCols;
    const std::uint8_t* const ahead =
        left >= 2 * kCols ? static_cast<const std::uint8_t*>(p.weight) + (col + kCols) * stride
                          : nullptr;
    with_width<kRows>(x.width(0), [&]<int rows>() {
      QuantizedTile<B, W, rows>::run(p, x.tile(0), x.lines(), p.row_end, col, cols, ahead);
    });
  }
  if (p.bias != nullptr) add_bias<S>(p);
}

template <class W>
struct QuantizedKernel {
  static constexpr MatmulKernel kKernel = matmul_quantized<typename W::Bytes, W>;
};

// The kernel for a weight's dtype, or null. `Kernel`: of a type of weights.
template <class B, template <class> class Kernel = QuantizedKernel>
MatmulKernel quantized_matmul(DType weight) {
  switch (weight) {
    case DType::kI4: return Kernel<QuantizedI4<B>>::kKernel;
    case DType::kQ4_1: return Kernel<QuantizedLegacy<B, DType::kQ4_1>>::kKernel;
    case DType::kQ5_0: return Kernel<QuantizedLegacy<B, DType::kQ5_0>>::kKernel;
    case DType::kQ5_1: return Kernel<QuantizedLegacy<B, DType::kQ5_1>>::kKernel;
    case DType::kQ8_0: return Kernel<QuantizedQ8<B>>::kKernel;
    case DType::kIq4Nl: return Kernel<QuantizedIq4Nl<B>>::kKernel;
    case DType::kIq4Xs: return Kernel<QuantizedIq4Xs<B>>::kKernel;
    case DType::kQ2K: return Kernel<QuantizedQ2K<B>>::kKernel;
    case DType::kQ3K: return Kernel<QuantizedQ3K<B>>::kKernel;
    case DType::kQ4K: return Kernel<QuantizedLinearK<B, DType::kQ4K>>::kKernel;
    case DType::kQ5K: return Kernel<QuantizedLinearK<B, DType::kQ5K>>::kKernel;
    case DType::kQ6K: return Kernel<QuantizedQ6K<B>>::kKernel;
    case DType::kU4G32: return Kernel<QuantizedU4G32<B>>::kKernel;
    case DType::kU4G128: return Kernel<QuantizedU4G128<B>>::kKernel;
    case DType::kU8G128: return Kernel<QuantizedU8G128<B>>::kKernel;
    default: return nullptr;
  }
}

}  // namespace sluice::kernels
