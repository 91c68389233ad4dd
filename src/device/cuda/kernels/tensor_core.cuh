// The instructions of fast kernels as functions: tensor cores and asynchronous copies. They have
// two definitions. kernels/tensor_core_ptx.cuh, which the build includes before device code, has
// the instructions (sm_80 and later). emulated_tensor_core.cpp does the same on the host, by
// NVIDIA's description of them.
//
// "All lanes": the 32 threads of a warp call the function together. g = lane / 4, t = lane % 4. A
// register holds two 16-bit elements, the one of the lower index in its low half. Addresses of 16
// bytes are multiples of 16, in shared and in global memory.
#pragma once

#include "device/op_params.h"

namespace sluice::cuda {

// The block's dynamic shared memory (LaunchShape::shared_bytes of it), at a multiple of 128.
__device__ unsigned char* dynamic_shared();

// Four matrices of 8 rows of 8 16-bit elements from shared memory, all lanes: lanes 0 to 7 give the
// addresses of the rows of the first, 8 to 15 of the second, and so on. A lane gets elements 2t and
// 2t + 1 of row g of matrix i in `to[i]` (ldmatrix.x4).
__device__ void load_matrices(unsigned (&to)[4], const void* row);
// The same, each matrix transposed: elements (2t, g) and (2t + 1, g) of matrix i.
__device__ void load_matrices_transposed(unsigned (&to)[4], const void* row);

// c += a b for a of 16 rows by 16, b of 16 rows by 8, all lanes; products are exact, sums float32
// (mma.m16n8k16). A lane holds
//   a[0]: row g, columns 2t and 2t + 1     a[2]: row g, columns 2t + 8 and 2t + 9
//   a[1]: row g + 8, the same columns      a[3]: row g + 8, the same columns as a[2]
//   b0: column g, rows 2t and 2t + 1       b1: column g, rows 2t + 8 and 2t + 9
//   c[0], c[1]: row g, columns 2t and 2t + 1; c[2], c[3]: row g + 8, the same columns
// So load_matrices loads a row-major `a` and a column-major `b`.
__device__ void multiply_add_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
__device__ void multiply_add_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);

// Two floats, rounded to nearest even, in one register.
__device__ unsigned pack_bf16(float low, float high);
__device__ unsigned pack_f16(float low, float high);

// Four codes of E4M3, none of them NaN, as 16-bit elements: the first two in to[0], exactly.
__device__ void widen_e4m3_bf16(unsigned (&to)[2], unsigned codes);
__device__ void widen_e4m3_f16(unsigned (&to)[2], unsigned codes);

// 2^x, to 2^-22 of it; exactly 1 for 0, and 0 for less than 2^-126, so for -infinity too.
__device__ float power_of_two(float x);

// copy_async starts a copy of 16 bytes from global to shared memory. If `present` is false it reads
// nothing and writes 16 zero bytes. commit_copies makes a group of the copies since the last
// commit. wait_for_copies waits until at most `groups_left` (a constant from 0 to 4) of this
// thread's groups are on their way. Other threads see the copies after a barrier.
__device__ void copy_async(void* shared, const void* global, bool present);
__device__ void commit_copies();
__device__ void wait_for_copies(int groups_left);

// 16 bytes of global memory that nothing changes while the kernel runs: load_once() where they are
// not read again soon, load_shared_input() where other blocks read them too (they stay in the L1
// cache).
__device__ void load_once(unsigned (&to)[4], const void* from);
__device__ void load_shared_input(unsigned (&to)[4], const void* from);

// The same for an element type, kBF16 or kF16.
template <DType kType>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  static_assert(kType == DType::kBF16 || kType == DType::kF16);
  if constexpr (kType == DType::kBF16) {
    multiply_add_bf16(c, a, b0, b1);
  } else {
    multiply_add_f16(c, a, b0, b1);
  }
}

template <DType kType>
__device__ inline unsigned pack(float low, float high) {
  static_assert(kType == DType::kBF16 || kType == DType::kF16);
  if constexpr (kType == DType::kBF16) {
    return pack_bf16(low, high);
  } else {
    return pack_f16(low, high);
  }
}

template <DType kType>
__device__ inline void widen_e4m3(unsigned (&to)[2], unsigned codes) {
  static_assert(kType == DType::kBF16 || kType == DType::kF16);
  if constexpr (kType == DType::kBF16) {
    widen_e4m3_bf16(to, codes);
  } else {
    widen_e4m3_f16(to, codes);
  }
}

}  // namespace sluice::cuda
