// A GPU's threads on one thread of the host, so that kernels run where there is no GPU: the very
// .cu files, compiled as C++ with this header in front. Each thread of a block is a fiber; fibers
// run one after the other from barrier to barrier, forwards in one launch and backwards in the
// next, so that a missing barrier shows. Slow, and silent about speed and about the memory model of
// a real GPU; what it shows is whether a kernel computes what it should. Owner: tests. Threads:
// one.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice::cuda::emulation {

struct Index {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

// Of the fiber that runs.
extern Index thread_index;
extern Index block_index;
extern Index block_dim;
extern Index grid_dim;

void wait_for_block();
void wait_for_warp();
// The value that the lane at `distance` (by exclusive or) of the warp gave. All lanes take part.
float exchange(float value, int distance);
[[noreturn]] void trap();

// What a lane brings to an instruction of the whole warp.
struct Registers {
  const char* instruction = nullptr;
  const void* address = nullptr;
  unsigned values[6] = {};
};
// What all lanes of the warp brought, valid until the lane's next exchange. A trap where a lane has
// ended or is at another instruction.
struct WarpRegisters {
  const Registers* lanes[32];
};
WarpRegisters exchange_registers(const Registers& own);

// The value that lane `lane` of the warp gave, and whether any lane gave true. All lanes take part.
long long value_of_lane(long long value, int lane);
bool any_of_warp(bool value);

// Blocks take turns, so nothing comes between.
inline int add_atomically(int* sum, int value) {
  const int before = *sum;
  *sum += value;
  return before;
}

// Loads of eight rows by load_matrices of which some lie in the same banks and wait for each other.
extern std::uint64_t bank_conflicts;
// Matrix instructions of warps.
extern std::uint64_t matrix_products;

// The block's dynamic shared memory: poison (NaN) when a block starts.
unsigned char* dynamic_shared_memory();

// Copies to shared memory. Until it is waited for, the target holds poison: whoever reads too
// early, or still reads what was there, gets NaN.
void start_copy(void* target, const void* source, bool present);
void commit_copies();
void wait_for_copies(std::size_t groups_left);

inline float float_of(unsigned bits) {
  float value = 0.0F;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline unsigned bits_of(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// As on a GPU, and not as on the host, an address that is no multiple of 16 is a fault.
struct Int4 {
  int x, y, z, w;
  Int4& operator=(const Int4& other) {
    if (reinterpret_cast<std::uintptr_t>(this) % 16 != 0) trap();
    if (reinterpret_cast<std::uintptr_t>(&other) % 16 != 0) trap();
    std::memcpy(static_cast<void*>(this), static_cast<const void*>(&other), sizeof(Int4));
    return *this;
  }
};

}  // namespace sluice::cuda::emulation

// The words of the language that kernels use; kernels/tensor_core.cuh has its own. __shared__
// memory is static: blocks take turns. NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (::sluice::cuda::emulation::thread_index)
#define blockIdx (::sluice::cuda::emulation::block_index)
#define blockDim (::sluice::cuda::emulation::block_dim)
#define gridDim (::sluice::cuda::emulation::grid_dim)
#define __syncthreads() ::sluice::cuda::emulation::wait_for_block()
#define __syncwarp() ::sluice::cuda::emulation::wait_for_warp()
#define __shfl_xor_sync(mask, value, distance) \
  ::sluice::cuda::emulation::exchange((value), (distance))
#define __shfl_sync(mask, value, lane) ::sluice::cuda::emulation::value_of_lane((value), (lane))
#define __any_sync(mask, value) ::sluice::cuda::emulation::any_of_warp((value))
#define __threadfence() static_cast<void>(0)
#define atomicAdd(sum, value) ::sluice::cuda::emulation::add_atomically((sum), (value))
#define __trap() ::sluice::cuda::emulation::trap()
#define __uint_as_float(bits) ::sluice::cuda::emulation::float_of(bits)
#define __float_as_uint(value) ::sluice::cuda::emulation::bits_of(value)
#define int4 ::sluice::cuda::emulation::Int4
// NOLINTEND(bugprone-reserved-identifier)
