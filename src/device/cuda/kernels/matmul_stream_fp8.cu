// Products of few rows by weights in FP8.
#include "device/cuda/kernels/matmul_stream.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_8(const MatmulParams p) {
  stream_kernel<kFp8Stream8>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_16(const MatmulParams p) {
  stream_kernel<kFp8Stream16>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_fp8_16_narrow(const MatmulParams p) {
  stream_kernel<kFp8Stream16Narrow>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_8(const GatedMatmulParams p) {
  stream_kernel<kFp8Stream8>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_fp8_16(const GatedMatmulParams p) {
  stream_kernel<kFp8Stream16>(p);
}

}  // namespace sluice::cuda
