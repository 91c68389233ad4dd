// Products of few rows by weights of 16-bit types.
#include "device/cuda/kernels/matmul_stream.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_8(const MatmulParams p) {
  __shared__ float partial[kSums<kStream8>];
  by_type<kStream8, false>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_16(const MatmulParams p) {
  __shared__ float partial[kSums<kStream16>];
  by_type<kStream16, false>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_16_narrow(const MatmulParams p) {
  __shared__ float partial[kSums<kStream16Narrow>];
  by_type<kStream16Narrow, false>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_8(const GatedMatmulParams p) {
  __shared__ float partial[kSums<kStream8>];
  by_type<kStream8, false>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_16(const GatedMatmulParams p) {
  __shared__ float partial[kSums<kStream16>];
  by_type<kStream16, false>(p, partial);
}

}  // namespace sluice::cuda
