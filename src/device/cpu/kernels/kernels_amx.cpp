// Compiled with the flags of AVX-512 with VNNI, BF16 and VBMI, and of AMX: see CMakeLists.txt.
// Products of x in BF16 run on tile registers; their bits differ from those of AVX-512.
#include "device/cpu/kernels/attention_tiles.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul_tiles.h"
#include "device/cpu/kernels/simd_avx512_bf16.h"
#include "device/cpu/kernels/tile_weights.h"

namespace sluice::kernels {
namespace {

template <class Blocks>
constexpr MatmulKernel kOfBlocks = matmul_tiles<Widened<Blocks, Avx512Bf16>>;

MatmulKernel packed_matmul(DType weight) {
  switch (weight) {
    case DType::kBF16: return matmul_tiles<InPlace<std::uint16_t>>;
    case DType::kI8: return matmul_tiles<InPlace<std::int8_t>, Int8Products, ScaledResult>;
    case DType::kF8E4M3: return matmul_tiles<WidenedF8<Avx512Bf16>>;
    case DType::kI4: return kOfBlocks<BlocksOfI4>;
    case DType::kQ4_1: return kOfBlocks<BlocksOfLegacy<DType::kQ4_1>>;
    case DType::kQ5_0: return kOfBlocks<BlocksOfLegacy<DType::kQ5_0>>;
    case DType::kQ5_1: return kOfBlocks<BlocksOfLegacy<DType::kQ5_1>>;
    case DType::kQ8_0: return kOfBlocks<BlocksOfQ8>;
    case DType::kIq4Nl: return kOfBlocks<BlocksOfIq4<DType::kIq4Nl>>;
    case DType::kIq4Xs: return kOfBlocks<BlocksOfIq4<DType::kIq4Xs>>;
    case DType::kQ2K: return kOfBlocks<BlocksOfQ2K>;
    case DType::kQ3K: return kOfBlocks<BlocksOfQ3K>;
    case DType::kQ5K: return kOfBlocks<BlocksOfQ5K>;
    case DType::kQ4K: return kOfBlocks<BlocksOfQ4K>;
    case DType::kQ6K: return kOfBlocks<BlocksOfQ6K>;
    case DType::kU4G32: return kOfBlocks<BlocksOfU4G32>;
    case DType::kU4G128: return kOfBlocks<BlocksOfU4G128>;
    case DType::kU8G128: return kOfBlocks<BlocksOfU8G128>;
    default: return nullptr;
  }
}

}  // namespace

const KernelTable& amx_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_bf16_kernels();
    table.attention = attention_tiles<Avx512>;
    table.add_attention_spans = add_tile_spans<Avx512>;
    table.pack_rows = pack_tokens<Avx512>;
    table.packed_matmul = packed_matmul;
    table.packed_from = 1;
    table.pass = 0;
    table.packed_cols = 2 * kPackedTile;
    // Tile registers multiply widened weights faster than lines of codes.
    table.quantized_matmul = nullptr;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
