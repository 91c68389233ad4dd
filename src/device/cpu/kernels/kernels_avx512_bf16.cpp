// Compiled with the flags of AVX-512 F, BW, DQ, VL, VNNI, BF16 and VBMI: see CMakeLists.txt. Only
// products of BF16, and attention over it, differ from those of AVX-512 with VNNI.
#include "device/cpu/kernels/attention_pairs.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/line_sources.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/matmul_in_place.h"
#include "device/cpu/kernels/matmul_panels.h"
#include "device/cpu/kernels/matmul_widened.h"
#include "device/cpu/kernels/packed_rows.h"
#include "device/cpu/kernels/panel_sources.h"
#include "device/cpu/kernels/simd_avx512_bf16.h"

namespace sluice::kernels {
namespace {

// Pairs of BF16 products, added in F32 by the hardware; denormals count as zero.
struct DotBf16Pairs {
  static constexpr bool kScaled = false;
  using Simd = Avx512;
  using Sum = __m512;
  using X = std::uint16_t;
  using W = std::uint16_t;
  using Vector = __m512i;
  static constexpr int kStep = 32;
  static constexpr std::int64_t kPass = kPairsPass;
  static constexpr int kPhases = 1;
  static constexpr int kRows = Avx512::kDotRows;
  static constexpr int kCols = Avx512::kDotCols;
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return Avx512::load_pairs(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return Avx512::load_pairs(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int n) {
    return Avx512::load_pairs(p, n);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return Avx512::load_pairs(p, n);
  }
  SLUICE_INLINE static __m512 multiply_add(Vector x, Vector w, __m512 sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

// Columns of FP8.
class ColumnsOfF8 {
 public:
  explicit ColumnsOfF8(const MatmulPiece& p) : columns_(p) {}
  void fill(std::int64_t col, std::int64_t k, std::int64_t end, std::uint16_t* to) {
    columns_.fill(col, k, end, to, kPanelLine);
  }

 private:
  PanelOfF8<Avx512Bf16> columns_;
};
static_assert(kManyPass == kPairsPass);

// From this many rows on, rows are packed once for all pieces. Fewer rows multiply FP8 while its
// lines are widened in registers.
constexpr std::int32_t kPackedFrom = 5;

void matmul_pairs(const MatmulPiece& p) {
  const std::int64_t rows = p.row_end - p.row_begin;
  // Few columns, such as the ranks of an adapter, do not make up for packed rows.
  if (rows > 1 && p.col_end - p.col_begin < kManyCols) return matmul<DotBf16Pairs>(p);
  matmul_in_place<DotBf16Pairs, Avx512Bf16>(p);
}

void matmul_packed_f8(const MatmulPiece& p) {
  if (p.row_end - p.row_begin <= kLinesRows && LinesOfF8::takes(p)) {
    return matmul_packed_lines<LinesOfF8, DotBf16Pairs>(p);
  }
  matmul_panels<PanelOfF8<Avx512Bf16>, true>(p);
}

MatmulKernel packed_pairs(DType weight) {
  switch (weight) {
    case DType::kBF16: return matmul_in_place<DotBf16Pairs, Avx512Bf16, true>;
    case DType::kF8E4M3: return matmul_packed_f8;
    default: return nullptr;
  }
}

// Few rows are faster so than from a panel.
void matmul_f8_pairs(const MatmulPiece& p) {
  const bool few = p.row_end - p.row_begin < kPackedFrom && LinesOfF8::takes(p);
  return few ? matmul_lines<LinesOfF8, DotBf16Pairs>(p) : matmul_panels<PanelOfF8<Avx512Bf16>>(p);
}

// One column after the other for weights whose columns do not fit into the piece's scratch memory.
// The sums of some rows wait in p.wide from pass to pass.
template <class Source>
void multiply_deep(const MatmulPiece& p, Source& source) {
  using Tile = DotTile<DotBf16<Avx512>, 1, 1>;
  constexpr std::int32_t kRows = kManyFloats / Avx512::kLanes;
  for (std::int64_t col = p.col_begin; col < p.col_end; ++col) {
    for (std::int32_t row = p.row_begin; row < p.row_end; row += kRows) {
      const std::int32_t rows = row + kRows < p.row_end ? kRows : p.row_end - row;
      for (std::int64_t k = 0; k < p.depth; k += kManyPass) {
        const std::int64_t end = k + kManyPass < p.depth ? k + kManyPass : p.depth;
        source.fill(col, k, end, p.scratch);
        const std::uint16_t* const w[1] = {p.scratch};
        for (std::int32_t r = 0; r < rows; ++r) {
          const std::uint16_t* const x[1] = {static_cast<const std::uint16_t*>(p.x) +
                                             (row + r) * p.x_stride + k};
          float* const carried = p.wide + r * Avx512::kLanes;
          __m512 sums[1][1] = {{k == 0 ? Avx512::zero() : Avx512::load(carried)}};
          Tile::add_products(x, w, {}, 0, end - k, sums);
          if (end == p.depth) Tile::store(sums, p, row + r, col);
          Avx512::store(carried, sums[0][0]);
        }
      }
    }
  }
  if (p.bias != nullptr) add_bias<Avx512>(p);
}

void matmul_f8_f32(const MatmulPiece& p) {
  if (p.row_end - p.row_begin <= 4 && LinesOfF8::takes(p)) {
    return matmul_lines<LinesOfF8, DotBf16<Avx512>>(p);
  }
  ColumnsOfF8 source(p);
  if (p.depth > MatmulParams::kMaxIntegerDepth) return multiply_deep(p, source);
  matmul_widened<Avx512>(p, source);
}

void attention_of_pairs(const AttentionParams& p, const AttentionPiece& piece) {
  if (!in_bf16(p)) return avx512_vnni_kernels().attention(p, piece);
  AttentionRun<WordsOfBf16<Avx512Bf16>>(p, piece).run();
}

void add_spans_of_pairs(const AttentionParams& p, const AttentionPiece& piece) {
  if (!in_bf16(p)) return avx512_vnni_kernels().add_attention_spans(p, piece);
  AttentionRun<WordsOfBf16<Avx512Bf16>>(p, piece).add_spans();
}

}  // namespace

const KernelTable& avx512_bf16_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_vnni_kernels();
    table.pass = kPairsPass;
    table.attention = attention_of_pairs;
    table.add_attention_spans = add_spans_of_pairs;
    table.matmul_bf16_bf16 = matmul_pairs;
    table.matmul_bf16_f8 = matmul_f8_pairs;
    table.packed_matmul = packed_pairs;
    table.pack_rows = pack_panels<Avx512Bf16>;
    table.packed_from = kPackedFrom;
    table.packed_cols = kPanelCols;
    return table;
  }();
  return kTable;
}

// Products in F32; the instructions for BF16 round the elements of FP8.
const KernelTable& avx512_bf16_fma_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_vnni_kernels();
    table.matmul_bf16_f8 = matmul_f8_f32;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
