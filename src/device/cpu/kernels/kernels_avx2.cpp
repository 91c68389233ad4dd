// Compiled with the flags of AVX2, FMA and F16C: see CMakeLists.txt.
#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/lora.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/matmul_blocks.h"
#include "device/cpu/kernels/matmul_int4.h"
#include "device/cpu/kernels/matmul_many.h"
#include "device/cpu/kernels/quantize_rows.h"
#include "device/cpu/kernels/rows.h"
#include "device/cpu/kernels/simd_avx2.h"

namespace sluice::kernels {
namespace {

// The policy of matmul_int4.h; see int4_avx512.h.
struct Int4Avx2 {
  using Simd = Avx2;
  using Codes = __m256i;
  static constexpr int kRows = 4;

  struct Constants {};

  SLUICE_INLINE static void read_codes(const Int4Columns<8>& columns, std::int64_t offset,
                                       Codes (&codes)[kInt4Quads]) {
    __m256 v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      v[j] = _mm256_castsi256_ps(_mm256_set_m128i(load_16_bytes(columns.at(4 + j, offset)),
                                                  load_16_bytes(columns.at(j, offset))));
    }
    const __m256 low = _mm256_unpacklo_ps(v[0], v[1]);
    const __m256 high = _mm256_unpackhi_ps(v[0], v[1]);
    const __m256 next_low = _mm256_unpacklo_ps(v[2], v[3]);
    const __m256 next_high = _mm256_unpackhi_ps(v[2], v[3]);
    const __m256 bytes[4] = {
        _mm256_shuffle_ps(low, next_low, 0x44), _mm256_shuffle_ps(low, next_low, 0xEE),
        _mm256_shuffle_ps(high, next_high, 0x44), _mm256_shuffle_ps(high, next_high, 0xEE)};
    const __m256i half = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m256i all = _mm256_castps_si256(bytes[q]);
      codes[q] = _mm256_and_si256(all, half);
      codes[4 + q] = _mm256_and_si256(_mm256_srli_epi16(all, 4), half);
    }
  }

  SLUICE_INLINE static void read_scales(const Constants& /*none*/, const Int4Columns<8>& columns,
                                        float (&scales)[kInt4Group][8]) {
    alignas(16) std::uint16_t halves[kInt4Group][8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      for (int b = 0; b < kInt4Group; ++b) {
        __builtin_memcpy(&halves[b][c], columns.at(c, b * kInt4BlockBytes), 2);
      }
    }
    for (int b = 0; b < kInt4Group; ++b) {
      _mm256_store_ps(scales[b], _mm256_cvtph_ps(load_16_bytes(halves[b])));
    }
  }

  SLUICE_INLINE static __m256 multiply(const Codes (&codes)[kInt4Quads], const std::int32_t* x,
                                       std::int64_t width, std::int32_t start) {
    __m256i pairs = _mm256_maddubs_epi16(codes[0], _mm256_set1_epi32(x[0]));
#pragma GCC unroll 8
    for (int q = 1; q < kInt4Quads; ++q) {
      pairs =
          _mm256_add_epi16(pairs, _mm256_maddubs_epi16(codes[q], _mm256_set1_epi32(x[q * width])));
    }
    const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(sums, _mm256_set1_epi32(start)));
  }
};

}  // namespace

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = {
      .matmul_f32_f32 = matmul<DotF32<Avx2, AsF32<Avx2>>>,
      .matmul_f32_f16 = matmul<DotF32<Avx2, AsF16<Avx2>>>,
      .matmul_f32_bf16 = matmul<DotF32<Avx2, AsBf16<Avx2>>>,
      .matmul_f32_f8 = matmul<DotF32<Avx2, AsF8<Avx2>>>,
      .matmul_bf16_bf16 = matmul_bf16<Avx2>,
      .matmul_bf16_f8 = nullptr,
      .matmul_i8_i8 = matmul<DotI8<Avx2>>,
      .matmul_int4 = matmul_int4<Int4Avx2>,
      .matmul_bf16_q8_0 = matmul_blocks<BlocksOfQ8, DotBf16<Avx2>>,
      .matmul_bf16_q4_k = matmul_blocks<BlocksOfQ4K, DotBf16<Avx2>>,
      .matmul_bf16_q6_k = matmul_blocks<BlocksOfQ6K, DotBf16<Avx2>>,
      .matmul_bf16_u4_g32 = matmul_blocks<BlocksOfU4G32, DotBf16<Avx2>>,
      .matmul_bf16_u4_g128 = matmul_blocks<BlocksOfU4G128, DotBf16<Avx2>>,
      .matmul_bf16_u8_g128 = matmul_blocks<BlocksOfU8G128, DotBf16<Avx2>>,
      .packed_matmul = nullptr,
      .pack_rows = nullptr,
      .matmul_cols = 12,
      .pass = 0,
      .lanes = Avx2::kLanes,
      .quantize_rows = quantize_rows<Avx2>,
      .pack_int4 = pack_int4<Avx2>,
      .embed = embed_rows<Avx2>,
      .rms_norm = rms_norm_rows<Avx2>,
      .layer_norm = layer_norm_rows<Avx2>,
      .rope_write_kv = rope_write_kv_rows<Avx2>,
      .gated_activation = gated_activation_rows<Avx2>,
      .gather_rows = gather_rows<Avx2>,
      .attention = attention<Avx2>,
      .add_attention_spans = add_attention_spans<Avx2>,
      .lora_expand = lora_expand<Avx2>,
  };
  return kTable;
}

}  // namespace sluice::kernels
