// Products of many rows by weights in FP8.
#include "device/cuda/kernels/matmul_tile.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_64(const MatmulParams p) {
  tile_kernel<kFp8Tile64>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_128(const MatmulParams p) {
  tile_kernel<kFp8Tile128>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_64(const GatedMatmulParams p) {
  tile_kernel<kFp8Tile64>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_128(const GatedMatmulParams p) {
  tile_kernel<kFp8Tile128>(p);
}

}  // namespace sluice::cuda
