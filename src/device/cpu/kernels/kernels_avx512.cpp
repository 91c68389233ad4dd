// Compiled with the flags of AVX-512 F, BW, DQ and VL: see CMakeLists.txt.
#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/bytes_avx512.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/lora.h"
#include "device/cpu/kernels/matmul.h"
#include "device/cpu/kernels/matmul_few.h"
#include "device/cpu/kernels/matmul_many.h"
#include "device/cpu/kernels/quantize_rows.h"
#include "device/cpu/kernels/rows.h"
#include "device/cpu/kernels/simd_avx512.h"

namespace sluice::kernels {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = {
      .matmul_f32_f32 = matmul_few_or_many<DotF32<Avx512, AsF32<Avx512>>>,
      .matmul_f32_f16 = matmul_few_or_many<DotF32<Avx512, AsF16<Avx512>>>,
      .matmul_f32_bf16 = matmul_few_or_many<DotF32<Avx512, AsBf16<Avx512>>>,
      .matmul_f32_f8 = matmul<DotF32<Avx512, AsF8<Avx512>>>,
      .matmul_bf16_bf16 = matmul_bf16<Avx512>,
      .matmul_bf16_f8 = nullptr,
      .matmul_i8_i8 = matmul<DotI8<Avx512>>,
      .quantized_matmul = quantized_matmul<BytesAvx512>,
      .packed_matmul = nullptr,
      .gated_matmul = nullptr,
      .pack_rows = nullptr,
      .packed_from = 0,
      .packed_fetches_next = false,
      .packed_cols = 0,
      .matmul_cols = 12,
      .pass = 0,
      .code_pass = 0,
      .lanes = Avx512::kLanes,
      .quantize_rows = quantize_rows<Avx512>,
      .pack_lines = pack_lines<Avx512, BytesAvx512::kRows>,
      .line_tile_rows = BytesAvx512::kRows,
      .embed = embed_rows<Avx512>,
      .rms_norm = rms_norm_rows<Avx512>,
      .layer_norm = layer_norm_rows<Avx512>,
      .rope_write_kv = rope_write_kv_rows<Avx512>,
      .gated_activation = gated_activation_rows<Avx512>,
      .gather_rows = gather_rows<Avx512>,
      .attention = attention<Avx512>,
      .add_attention_spans = add_attention_spans<Avx512>,
      .lora_expand = lora_expand<Avx512>,
  };
  return kTable;
}

}  // namespace sluice::kernels
