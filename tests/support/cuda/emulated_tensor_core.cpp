// kernels/tensor_core.cuh on the host. Layouts are those of NVIDIA's "Parallel Thread Execution
// ISA" 9.0, sections "Matrix Fragments for mma.m16n8k16 with floating point type" and "Warp-level
// matrix load instruction: ldmatrix", written down from there and not from what kernels do.
#include <initializer_list>

#include "tests/support/cuda/emulated_gpu.h"
// Included after the definitions of the language's keywords.
#include "device/cuda/kernels/elements.cuh"
#include "device/cuda/kernels/tensor_core.cuh"

namespace sluice::cuda {
namespace {

using emulation::Registers;
using emulation::WarpRegisters;

constexpr unsigned kA = 0;  // of Registers::values
constexpr unsigned kB = 4;

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

std::uint16_t half_of(unsigned word, unsigned index) {
  return static_cast<std::uint16_t>(word >> (16 * index));
}

// Rows of 16 bytes share banks where their addresses differ by a multiple of 128.
void count_bank_conflicts(const WarpRegisters& warp) {
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    unsigned seen = 0;
    for (unsigned row = 0; row < 8; ++row) {
      const auto address = reinterpret_cast<std::uintptr_t>(warp.lanes[8 * matrix + row]->address);
      seen |= 1U << (address / 16 % 8);
    }
    if (seen != 0xFF) ++emulation::bank_conflicts;
  }
}

// ldmatrix: "for .x4, threads 8 i to 8 i + 7 give the row addresses of matrix i"; "each row of a
// matrix is held by four threads, thread 4 r having the first two elements of row r". With .trans
// the matrix is stored transposed: what would be rows are its columns.
void load(unsigned (&to)[4], const void* row, bool transposed, const char* instruction) {
  if (!is_aligned(row)) emulation::trap();
  const WarpRegisters warp = emulation::exchange_registers({instruction, row, {}});
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) count_bank_conflicts(warp);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned from_row = transposed ? lane % 4 * 2 + i : lane / 4;
      const unsigned from_column = transposed ? lane / 4 : lane % 4 * 2 + i;
      const auto* elements =
          static_cast<const std::uint16_t*>(warp.lanes[8 * matrix + from_row]->address);
      pair[i] = elements[from_column];
    }
    to[matrix] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
  }
}

// Where the document has element i of a fragment: a_0 to a_7, b_0 to b_3, c_0 to c_3.
struct Place {
  unsigned row;
  unsigned column;
};
Place place_of_a(unsigned lane, unsigned i) {
  const unsigned group = lane >> 2;
  return {i < 2 || (i >= 4 && i < 6) ? group : group + 8, lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
}
Place place_of_b(unsigned lane, unsigned i) {
  return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2};
}
Place place_of_c(unsigned lane, unsigned i) {
  return {(lane >> 2) + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

// The order of a sum is the hardware's own business: ascending here.
void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
              float (*widen)(std::uint16_t), const char* instruction) {
  const WarpRegisters warp =
      emulation::exchange_registers({instruction, nullptr, {a[0], a[1], a[2], a[3], b0, b1}});
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) ++emulation::matrix_products;
  // A lane's four results lie in two rows, which its own group of four lanes holds, and in two
  // columns, each held by one group.
  float rows[2][16];
  float columns[2][16];
  const Place first = place_of_c(lane, 0);
  const Place last = place_of_c(lane, 3);
  for (unsigned member = 0; member < 4; ++member) {
    const unsigned of_rows = lane / 4 * 4 + member;
    for (unsigned i = 0; i < 8; ++i) {
      const auto [row, k] = place_of_a(of_rows, i);
      rows[row == last.row][k] = widen(half_of(warp.lanes[of_rows]->values[kA + i / 2], i % 2));
    }
    for (const unsigned wanted : {first.column, last.column}) {
      const unsigned of_column = wanted * 4 + member;
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned k = place_of_b(of_column, i).row;
        columns[wanted == last.column][k] =
            widen(half_of(warp.lanes[of_column]->values[kB + i / 2], i % 2));
      }
    }
  }
  for (unsigned i = 0; i < 4; ++i) {
    const auto [row, column] = place_of_c(lane, i);
    for (unsigned k = 0; k < 16; ++k) {
      c[i] = std::fma(rows[row == last.row][k], columns[column == last.column][k], c[i]);
    }
  }
}

constexpr unsigned kNan = 0x7FFF;  // what conversions make of any NaN

unsigned pack(float low, float high, std::uint16_t (*round)(float)) {
  const unsigned first = std::isnan(low) ? kNan : round(low);
  return first | (std::isnan(high) ? kNan : round(high)) << 16;
}

}  // namespace

std::uint64_t emulation::bank_conflicts = 0;
std::uint64_t emulation::matrix_products = 0;

unsigned char* dynamic_shared() { return emulation::dynamic_shared_memory(); }

void load_matrices(unsigned (&to)[4], const void* row) { load(to, row, false, "ldmatrix"); }

void load_matrices_transposed(unsigned (&to)[4], const void* row) {
  load(to, row, true, "ldmatrix.trans");
}

void multiply_add_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  multiply(c, a, b0, b1, bf16_to_f32, "mma.bf16");
}

void multiply_add_f16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  multiply(c, a, b0, b1, f16_to_f32, "mma.f16");
}

unsigned pack_bf16(float low, float high) { return pack(low, high, f32_to_bf16); }
unsigned pack_f16(float low, float high) { return pack(low, high, f32_to_f16); }

namespace {

// The result for NaN is unspecified.
void widen(unsigned (&to)[2], unsigned codes, std::uint16_t (*round)(float)) {
  for (unsigned i = 0; i < 2; ++i) to[i] = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const auto code = static_cast<std::uint8_t>(codes >> (8 * i));
    if ((code & 0x7FU) == 0x7FU) emulation::trap();
    to[i / 2] |= static_cast<unsigned>(round(e4m3_to_f32(code))) << (16 * (i % 2));
  }
}

}  // namespace

void widen_e4m3_bf16(unsigned (&to)[2], unsigned codes) { widen(to, codes, f32_to_bf16); }
void widen_e4m3_f16(unsigned (&to)[2], unsigned codes) { widen(to, codes, f32_to_f16); }

float power_of_two(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126F ? 0.0F : power;
}

void copy_async(void* shared, const void* global, bool present) {
  emulation::start_copy(shared, global, present);
}

void commit_copies() { emulation::commit_copies(); }

void wait_for_copies(int groups_left) {
  if (groups_left < 0 || groups_left > 4) emulation::trap();
  emulation::wait_for_copies(static_cast<std::size_t>(groups_left));
}

void load_once(unsigned (&to)[4], const void* from) {
  if (!is_aligned(from)) emulation::trap();
  std::memcpy(to, from, sizeof(to));
}

void load_shared_input(unsigned (&to)[4], const void* from) { load_once(to, from); }

}  // namespace sluice::cuda
