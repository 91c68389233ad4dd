// Compiled with the flags of AVX-512 F, BW, DQ, VL, VNNI, BF16 and VBMI: see CMakeLists.txt. Only
// products of BF16, and attention over it, differ from those of AVX-512 with VNNI.
#include "device/cpu/kernels/attention_pairs.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/line_sources.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/matmul_blocks.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_panels.h"
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

// The weight in Q8_0, widened block by block.
struct DotQ8Pairs : DotBf16Pairs {
  using W = std::uint8_t;
  SLUICE_INLINE static const W* at(const W* row, std::int64_t k) {
    constexpr ElementBlock kBlock = block_of(DType::kQ8_0);
    return row + k / kBlock.elements * kBlock.bytes;
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    const __m512 scale = Avx512::set1_f16(p);
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p + 2)));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p + 18)));
    return reinterpret_cast<Vector>(
        _mm512_cvtne2ps_pbh(_mm512_mul_ps(high, scale), _mm512_mul_ps(low, scale)));
  }
  template <int phase>
  SLUICE_INLINE static Vector load_w(const W* p, int) {
    return load_w<phase>(p);
  }
};
static_assert(DotQ8Pairs::kStep == block_of(DType::kQ8_0).elements);

// The weight in kU4G32, likewise.
struct DotU4G32Pairs : DotBf16Pairs {
  using W = std::uint8_t;
  SLUICE_INLINE static const W* at(const W* row, std::int64_t k) {
    constexpr ElementBlock kBlock = block_of(DType::kU4G32);
    return row + k / kBlock.elements * kBlock.bytes;
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    const __m512 values = Avx512::shifted_values(Avx512::set1_f16(p), static_cast<float>(p[2]));
    return Avx512::look_up_nibbles(p + 3, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
  template <int phase>
  SLUICE_INLINE static Vector load_w(const W* p, int) {
    return load_w<phase>(p);
  }
};
static_assert(DotU4G32Pairs::kStep == block_of(DType::kU4G32).elements);

// A weight in blocks of 128 elements, which are a step. The sums are added in the order of
// DotBf16Pairs.
template <DType dtype>
struct DotPairs128 : DotBf16Pairs {
  using W = std::uint8_t;
  struct Vector {
    __m512i quarters[4];
  };
  static constexpr int kStep = 128;
  static_assert(kStep == block_of(dtype).elements);
  static constexpr int kRows = 2;  // registers hold the vectors of two rows of x
  SLUICE_INLINE static const W* at(const W* row, std::int64_t k) {
    return row + k / kStep * block_of(dtype).bytes;
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return {Avx512::load_pairs(p), Avx512::load_pairs(p + 32), Avx512::load_pairs(p + 64),
            Avx512::load_pairs(p + 96)};
  }
  // The elements behind the first n are zeros, and so are their products.
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int n) {
    Vector x;
    for (int i = 0; i < 4; ++i) {
      const int left = n - 32 * i;
      x.quarters[i] = Avx512::load_pairs(p + 32 * i, left < 0 ? 0 : left > 32 ? 32 : left);
    }
    return x;
  }
  SLUICE_INLINE static __m512 multiply_add(const Vector& x, const Vector& w, __m512 sum) {
    for (int i = 0; i < 4; ++i) {
      sum = DotBf16Pairs::multiply_add(x.quarters[i], w.quarters[i], sum);
    }
    return sum;
  }
};

struct DotU4G128Pairs : DotPairs128<DType::kU4G128> {
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    float scale = 0.0F;
    __builtin_memcpy(&scale, p, sizeof(scale));
    const __m512 values = Avx512::shifted_values(Avx512::set1(scale), static_cast<float>(p[4]));
    Vector w;
    Avx512::look_up_runs(_mm512_loadu_si512(p + 5),
                         reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)), w.quarters);
    return w;
  }
  template <int phase>
  SLUICE_INLINE static Vector load_w(const W* p, int) {
    return load_w<phase>(p);
  }
};

struct DotU8G128Pairs : DotPairs128<DType::kU8G128> {
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    float factor = 0.0F;
    __builtin_memcpy(&factor, p, sizeof(factor));
    const __m512 scale = Avx512::set1(factor);
    const auto zero = static_cast<float>(p[4]);
    Vector w;
    for (int i = 0; i < 4; ++i) {
      const W* const codes = p + 5 + 32 * i;
      w.quarters[i] = reinterpret_cast<__m512i>(
          _mm512_cvtne2ps_pbh(Avx512::shifted(load_16_bytes(codes + 16), scale, zero),
                              Avx512::shifted(load_16_bytes(codes), scale, zero)));
    }
    return w;
  }
  template <int phase>
  SLUICE_INLINE static Vector load_w(const W* p, int) {
    return load_w<phase>(p);
  }
};

// The weight widened in registers by `Pairs`, the products in F32: with the bits of DotBf16.
template <class Pairs>
struct DotBlocksF32 {
  static constexpr bool kScaled = false;
  using Simd = Avx512;
  using Sum = __m512;
  using X = std::uint16_t;
  using W = typename Pairs::W;
  using Vector = typename Pairs::Vector;
  static constexpr int kStep = Pairs::kStep;
  static constexpr int kPhases = 1;
  static constexpr int kRows = 2;  // more need more registers than there are
  static constexpr int kCols = Pairs::kCols;
  SLUICE_INLINE static const W* at(const W* row, std::int64_t k) { return Pairs::at(row, k); }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p) {
    return Pairs::template load_x<0>(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_x(const X* p, int n) {
    return Pairs::template load_x<0>(p, n);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p) {
    return Pairs::template load_w<0>(p);
  }
  template <int>
  SLUICE_INLINE static Vector load_w(const W* p, int n) {
    return Pairs::template load_w<0>(p, n);
  }
  SLUICE_INLINE static __m512 multiply_add(const Vector& x, const Vector& w, __m512 sum) {
    if constexpr (requires { w.quarters; }) {
      for (int i = 0; i < 4; ++i) sum = add_pairs(x.quarters[i], w.quarters[i], sum);
      return sum;
    } else {
      return add_pairs(x, w, sum);
    }
  }

 private:
  SLUICE_INLINE static __m512 add_pairs(__m512i x, __m512i w, __m512 sum) {
    sum = Avx512::fma(Avx512::even(x), Avx512::even(w), sum);
    return Avx512::fma(Avx512::odd(x), Avx512::odd(w), sum);
  }
};

template <class Blocks, class InRegisters = NoRegisters>
constexpr MatmulKernel kBlocksInF32 =
    matmul_blocks<Blocks, DotBf16<Avx512>, Avx512Bf16, InRegisters>;

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

// From this many rows on the products take longer than the weight takes to arrive.
constexpr std::int64_t kPanelFrom = 32;

void matmul_pairs(const MatmulPiece& p) {
  const std::int64_t rows = p.row_end - p.row_begin;
  // Few columns, such as the ranks of an adapter, do not make up for packed rows.
  if (rows > 1 && p.col_end - p.col_begin < kManyCols) return matmul<DotBf16Pairs>(p);
  if (rows < kPanelFrom) return matmul_few<DotBf16Pairs, Avx512Bf16>(p);
  matmul_panels<PanelOfBf16<Avx512Bf16>>(p);
}

// Up to kFew rows are faster while lines are widened in registers than from a panel.
template <class Source, MatmulKernel kMany, int kFew = 4>
void matmul_few_or(const MatmulPiece& p) {
  return p.row_end - p.row_begin <= kFew ? matmul_lines<Source, DotBf16Pairs>(p) : kMany(p);
}

void matmul_f8_pairs(const MatmulPiece& p) {
  const bool few = p.row_end - p.row_begin <= 4 && LinesOfF8::takes(p);
  return few ? matmul_lines<LinesOfF8, DotBf16Pairs>(p) : matmul_panels<PanelOfF8<Avx512Bf16>>(p);
}

// The same with products in F32.
template <class Source, MatmulKernel kMany, int kFew>
void matmul_few_or_f32(const MatmulPiece& p) {
  return p.row_end - p.row_begin <= kFew ? matmul_lines<Source, DotBf16<Avx512>>(p) : kMany(p);
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
  matmul_widened<DotBf16<Avx512>>(p, source);
}

void attention_of_pairs(const AttentionParams& p, const AttentionPiece& piece) {
  if (!in_bf16(p)) return avx512_vnni_kernels().attention(p, piece);
  AttentionRun<WordsOfBf16<Avx512Bf16>>(p, piece).run();
}

void add_spans_of_pairs(const AttentionParams& p, const AttentionPiece& piece) {
  if (!in_bf16(p)) return avx512_vnni_kernels().add_attention_spans(p, piece);
  AttentionRun<WordsOfBf16<Avx512Bf16>>(p, piece).add_spans();
}

// `InRegisters`: widens blocks while it multiplies them by at most so many rows as its tile has.
template <class Blocks, class InRegisters = NoRegisters>
void matmul_block_pairs(const MatmulPiece& p) {
  if constexpr (!std::is_same_v<InRegisters, NoRegisters>) {
    if (p.row_end - p.row_begin <= InRegisters::kRows)
      return matmul_in_registers<Blocks, InRegisters>(p);
  }
  matmul_panels<PanelOfBlocks<Avx512Bf16, Blocks>>(p);
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
    table.matmul_bf16_q8_0 = matmul_block_pairs<BlocksOfQ8, DotQ8Pairs>;
    table.matmul_bf16_q4_k = matmul_few_or<LinesOfQ4K, matmul_block_pairs<BlocksOfQ4K>>;
    table.matmul_bf16_q6_k = matmul_few_or<LinesOfQ6K, matmul_block_pairs<BlocksOfQ6K>, 2>;
    table.matmul_bf16_u4_g32 = matmul_block_pairs<BlocksOfU4G32, DotU4G32Pairs>;
    table.matmul_bf16_u4_g128 = matmul_block_pairs<BlocksOfU4G128, DotU4G128Pairs>;
    table.matmul_bf16_u8_g128 = matmul_block_pairs<BlocksOfU8G128, DotU8G128Pairs>;
    return table;
  }();
  return kTable;
}

// Products in F32; the instructions for BF16 round the elements of blocks.
const KernelTable& avx512_bf16_fma_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_vnni_kernels();
    table.matmul_bf16_f8 = matmul_f8_f32;
    table.matmul_bf16_q8_0 = kBlocksInF32<BlocksOfQ8, DotBlocksF32<DotQ8Pairs>>;
    table.matmul_bf16_q4_k = matmul_few_or_f32<LinesOfQ4K, kBlocksInF32<BlocksOfQ4K>, 4>;
    table.matmul_bf16_q6_k = matmul_few_or_f32<LinesOfQ6K, kBlocksInF32<BlocksOfQ6K>, 4>;
    table.matmul_bf16_u4_g32 = kBlocksInF32<BlocksOfU4G32, DotBlocksF32<DotU4G32Pairs>>;
    table.matmul_bf16_u4_g128 = kBlocksInF32<BlocksOfU4G128, DotBlocksF32<DotU4G128Pairs>>;
    table.matmul_bf16_u8_g128 = kBlocksInF32<BlocksOfU8G128, DotBlocksF32<DotU8G128Pairs>>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
