// Products of few rows by weights in FP8.
#include "device/cuda/kernels/matmul_stream.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_8(const MatmulParams p) {
  __shared__ float partial[kSums<kFp8Stream8>];
  by_type<kFp8Stream8, true>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_16(const MatmulParams p) {
  __shared__ float partial[kSums<kFp8Stream16>];
  by_type<kFp8Stream16, true>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_16_narrow(const MatmulParams p) {
  __shared__ float partial[kSums<kFp8Stream16Narrow>];
  by_type<kFp8Stream16Narrow, true>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_8(const GatedMatmulParams p) {
  __shared__ float partial[kSums<kFp8Stream8>];
  by_type<kFp8Stream8, true>(p, partial);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_16(const GatedMatmulParams p) {
  __shared__ float partial[kSums<kFp8Stream16>];
  by_type<kFp8Stream16, true>(p, partial);
}

}  // namespace sluice::cuda
