// kernels/tensor_core.cuh in PTX. The build includes this file before device code
// (cmake/cuda.cmake), and emulated_gpu.h before the same code for the host.
#pragma once

#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {

__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char sluice_dynamic_shared[];
  return sluice_dynamic_shared;
}

__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(unsigned (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void multiply_add_bf16(float (&c)[4], const unsigned (&a)[4],
                                                  unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void multiply_add_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                                 unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The instruction takes the high half first.
__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ unsigned pack_f16(float low, float high) {
  unsigned packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Shifts a code's bits into place. The exponent's bias is 127 in bfloat16 and 7 in E4M3; a product
// with 2^120 corrects that exactly, also for subnormal codes. Capability 8 has no bfloat16 product
// without a sum; adding -0 changes nothing.
__device__ __forceinline__ void widen_e4m3_bf16(unsigned (&to)[2], unsigned codes) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // From the lowest byte on: 0, the even code, 0, the odd code.
    const unsigned spread = __byte_perm(codes, 0, half == 0 ? 0x1404 : 0x3424);
    const unsigned moved = (spread & 0x80008000U) | ((spread >> 4) & 0x07F007F0U);
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(to[half])
        : "r"(moved), "r"(0x7B807B80U), "r"(0x80008000U));
  }
}

// As above; the bias is 15.
__device__ __forceinline__ void widen_e4m3_f16(unsigned (&to)[2], unsigned codes) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const unsigned spread = __byte_perm(codes, 0, half == 0 ? 0x1404 : 0x3424);
    const unsigned moved = (spread & 0x80008000U) | ((spread >> 1) & 0x3F803F80U);
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(to[half]) : "r"(moved), "r"(0x5C005C00U));
  }
}

__device__ __forceinline__ float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

__device__ __forceinline__ void copy_async(void* shared, const void* global, bool present) {
  const int bytes = present ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}

__device__ __forceinline__ void wait_for_copies(int groups_left) {
  switch (groups_left) {
    case 0: asm volatile("cp.async.wait_group 0;" : : : "memory"); return;
    case 1: asm volatile("cp.async.wait_group 1;" : : : "memory"); return;
    case 2: asm volatile("cp.async.wait_group 2;" : : : "memory"); return;
    case 3: asm volatile("cp.async.wait_group 3;" : : : "memory"); return;
    case 4: asm volatile("cp.async.wait_group 4;" : : : "memory"); return;
    default: __trap();
  }
}

__device__ __forceinline__ void load_once(unsigned (&to)[4], const void* from) {
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "l"(__cvta_generic_to_global(from)));
}

__device__ __forceinline__ void load_shared_input(unsigned (&to)[4], const void* from) {
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "l"(__cvta_generic_to_global(from)));
}

}  // namespace sluice::cuda
