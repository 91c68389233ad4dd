// Products of many rows by weights of 16-bit types.
#include "device/cuda/kernels/matmul_tile.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_64(const MatmulParams p) {
  tile_kernel<kTile64>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_128(const MatmulParams p) {
  tile_kernel<kTile128>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_64(const GatedMatmulParams p) {
  tile_kernel<kTile64>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_128(const GatedMatmulParams p) {
  tile_kernel<kTile128>(p);
}

}  // namespace sluice::cuda
