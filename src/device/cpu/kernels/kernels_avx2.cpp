// Compiled with the flags of AVX2, FMA and F16C: see CMakeLists.txt.
#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/bytes_avx2.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/lora.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_many.h"
#include "device/cpu/kernels/quantize_rows.h"
#include "device/cpu/kernels/rows.h"
#include "device/cpu/kernels/simd_avx2.h"

namespace sluice::kernels {
const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = {
      .matmul_f32_f32 = matmul_few_or_many<DotF32<Avx2, AsF32<Avx2>>>,
      .matmul_f32_f16 = matmul_few_or_many<DotF32<Avx2, AsF16<Avx2>>>,
      .matmul_f32_bf16 = matmul_few_or_many<DotF32<Avx2, AsBf16<Avx2>>>,
      .matmul_f32_f8 = matmul<DotF32<Avx2, AsF8<Avx2>>>,
      .matmul_bf16_bf16 = matmul_bf16<Avx2>,
      .matmul_bf16_f8 = nullptr,
      .matmul_i8_i8 = matmul<DotI8<Avx2>>,
      .quantized_matmul = quantized_matmul<BytesAvx2>,
      .packed_matmul = nullptr,
      .gated_matmul = nullptr,
      .pack_rows = nullptr,
      .packed_from = 0,
      .packed_fetches_next = false,
      .packed_cols = 0,
      .matmul_cols = 12,
      .pass = 0,
      .code_pass = 0,
      .lanes = Avx2::kLanes,
      .quantize_rows = quantize_rows<Avx2>,
      .pack_lines = pack_lines<Avx2, BytesAvx2::kRows>,
      .line_tile_rows = BytesAvx2::kRows,
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
