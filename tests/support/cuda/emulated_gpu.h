// Runs a GPU's threads on one thread of the host, so that kernels can be tested without a GPU. The
// same .cu files are compiled as C++ with this header in front. Each thread of a block is a fiber.
// Fibers run one after the other from barrier to barrier, forwards in one launch and backwards in
// the next, so that tests detect a missing barrier. The emulation shows whether a kernel's results
// are right; it says nothing about speed or about a GPU's memory model. Owner: tests. Threads: one.
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

// Indices of the running fiber.
extern Index thread_index;
extern Index block_index;
extern Index block_dim;
extern Index grid_dim;

void wait_for_block();
void wait_for_warp();
// The value of the warp's lane at `distance` (by exclusive or). All lanes must call it.
float exchange(float value, int distance);
[[noreturn]] void trap();

// A lane's operands of an instruction of the whole warp.
struct Registers {
  const char* instruction = nullptr;
  const void* address = nullptr;
  unsigned values[6] = {};
};
// The operands of all lanes of the warp, valid until the lane's next exchange. Traps if a lane has
// ended or is at another instruction.
struct WarpRegisters {
  const Registers* lanes[32];
};
WarpRegisters exchange_registers(const Registers& own);

// The value of lane `lane` of the warp; whether any lane gave true. All lanes must call them.
long long value_of_lane(long long value, int lane);
bool any_of_warp(bool value);

// Blocks run one after the other, so this is atomic.
inline int add_atomically(int* sum, int value) {
  const int before = *sum;
  *sum += value;
  return before;
}

// Number of eight-row loads by load_matrices in which rows share banks and wait for each other.
extern std::uint64_t bank_conflicts;
// Number of matrix instructions.
extern std::uint64_t matrix_products;

// The block's dynamic shared memory: poison (NaN) when a block starts.
unsigned char* dynamic_shared_memory();

// Copies to shared memory. Until the copy has been waited for, the target holds poison: a thread
// that reads too early gets NaN.
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
