// Products of many rows by weights in FP8.
#include "device/cuda/kernels/matmul_tile.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_64(const MatmulParams p) {
  by_type<kFp8Tile64, true>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_128(const MatmulParams p) {
  by_type<kFp8Tile128, true>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_64(const GatedMatmulParams p) {
  by_type<kFp8Tile64, true>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_128(const GatedMatmulParams p) {
  by_type<kFp8Tile128, true>(p);
}

}  // namespace sluice::cuda
