// Compiled with the flags of AVX-512 with VNNI, BF16 and VBMI, and of AMX: see CMakeLists.txt.
// Products of x in BF16 run on tile registers; their bits differ from those of AVX-512.
#include "device/cpu/kernels/attention_tiles.h"
#include "device/cpu/kernels/kernel_table.h"
#include "device/cpu/kernels/matmul_line_tiles.h"
#include "device/cpu/kernels/matmul_tiles.h"
#include "device/cpu/kernels/simd_avx512_bf16.h"
#include "device/cpu/kernels/tile_weights.h"

namespace sluice::kernels {
namespace {

// Weights in blocks. Tile registers are faster from the second tile of rows on, which shares panels
// of codes with the first one. Lines of two runs would take two products of a quarter of a tile.
template <class W>
void matmul_blocks(const MatmulPiece& p) {
  const MatmulKernel few = avx512_bf16_kernels().quantized_matmul(W::kDType);
  if constexpr (W::kRuns == 1) {
    const std::int32_t rows = p.row_end;
    if (rows <= kTileRows) return few(p);
    const int tiles = LineTiles<W>::tiles_of(rows);
    LineTiles<W>(p).run(tiles);
    MatmulPiece part = p;
    part.row_end = rows < tiles * kTileRows ? rows : tiles * kTileRows;
    if (p.bias != nullptr) add_bias<Avx512>(part);
    if (part.row_end == rows) return;
    part.x = QuantizedInput<kTileRows>(p.x, p.depth, rows).tile(tiles);
    part.out += part.row_end * p.out_stride;
    part.row_end = rows - part.row_end;
    return few(part);
  }
  few(p);
}
// For quantized_matmul() of matmul_quantized.h.
template <class W>
struct KernelOfBlocks {
  static constexpr MatmulKernel kKernel = matmul_blocks<W>;
};

struct TileKernels {
  MatmulKernel product = nullptr;
  GatedKernel gated = nullptr;
};
template <class Weight, class Products = Bf16Products, class Sums = FloatSums>
constexpr TileKernels kTileKernels = {matmul_tiles<Weight, Products, Sums>,
                                      gated_tiles<Weight, Products, Sums>};

TileKernels tile_kernels(DType weight) {
  switch (weight) {
    case DType::kBF16: return kTileKernels<InPlace<std::uint16_t>>;
    case DType::kI8: return kTileKernels<InPlace<std::int8_t>, Int8Products, ScaledSums>;
    case DType::kF8E4M3: return kTileKernels<WidenedF8<Avx512Bf16>>;
    default: return {};
  }
}

}  // namespace

const KernelTable& amx_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_bf16_kernels();
    table.attention = attention_tiles<Avx512>;
    table.add_attention_spans = add_tile_spans<Avx512>;
    table.pack_rows = pack_tokens<Avx512>;
    table.packed_matmul = [](DType weight) { return tile_kernels(weight).product; };
    table.gated_matmul = [](DType weight) { return tile_kernels(weight).gated; };
    table.packed_from = 1;
    table.packed_fetches_next = true;
    table.pass = 0;
    table.packed_cols = 2 * kPackedTile;
    table.quantized_matmul = quantized_matmul<BytesOfTiles, KernelOfBlocks>;
    return table;
  }();
  return kTable;
}

}  // namespace sluice::kernels
