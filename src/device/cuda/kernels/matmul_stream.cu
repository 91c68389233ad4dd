// Products of few rows by weights of 16-bit types.
#include "device/cuda/kernels/matmul_stream.cuh"

namespace sluice::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_8(const MatmulParams p) {
  stream_kernel<kStream8>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) sluice_matmul_16(const MatmulParams p) {
  stream_kernel<kStream16>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_matmul_16_narrow(const MatmulParams p) {
  stream_kernel<kStream16Narrow>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_8(const GatedMatmulParams p) {
  stream_kernel<kStream8>(p);
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    sluice_gated_matmul_16(const GatedMatmulParams p) {
  stream_kernel<kStream16>(p);
}

}  // namespace sluice::cuda
