// The tile registers of AMX: eight registers of 16 rows by 64 bytes at most. TileSession configures
// them for its lifetime; the other functions need one on their thread. The tiles of the compiler's
// header are not used: g++ 12's intrinsics do not say which memory they read. Included by
// kernels_amx.cpp and the tests of its emulator only.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "device/cpu/kernels/inline.h"

namespace sluice::kernels {

inline constexpr int kTileRows = 16;
inline constexpr std::int64_t kTileRowBytes = 64;
inline constexpr std::int64_t kTileBytes = kTileRows * kTileRowBytes;

struct TileShape {
  std::uint8_t rows = 0;
  std::uint16_t row_bytes = 0;
};

class TileSession {
 public:
  // All registers have rows of `columns` elements of 32 bits, but `wholes` of them, from kWhole on,
  // have whole rows.
  static constexpr int kWhole = 4;
  SLUICE_INLINE explicit TileSession(int columns = kTileRows, int wholes = 1)
      : TileSession([columns, wholes](int tile) -> TileShape {
          const bool whole = tile >= kWhole && tile < kWhole + wholes;
          return {kTileRows, static_cast<std::uint16_t>(whole ? kTileRowBytes : 4 * columns)};
        }) {}
  // shape_of(i): of register i.
  template <class Shapes>
    requires std::is_invocable_r_v<TileShape, Shapes, int>
  SLUICE_INLINE explicit TileSession(const Shapes& shape_of) {
    Config config;
    for (int i = 0; i < 8; ++i) {
      const TileShape shape = shape_of(i);
      config.row_bytes[i] = shape.row_bytes;
      config.rows[i] = shape.rows;
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  // Registers that are not in use need not be saved when the system switches threads.
  SLUICE_INLINE ~TileSession() { asm volatile("tilerelease"); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;

 private:
  // As the instruction reads it.
  struct alignas(64) Config {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);
};

// Registers are named in the code, so loops over them are unrolled: calls f(i) for i in [0, count),
// with decltype(i)::value constant.
template <int count, class Function>
SLUICE_INLINE void repeat(const Function& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (f(std::integral_constant<int, i>()), ...);
  }(std::make_integer_sequence<int, count>());
}

template <int tile>
SLUICE_INLINE void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
// Rows at p, p + stride, ...; the stride is in bytes. Lines that are loaded `once` leave the
// first-level cache to others.
template <int tile, bool once = false>
SLUICE_INLINE void load_tile(const void* p, std::int64_t stride) {
  if constexpr (once) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(tile) : "memory");
  } else {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(tile) : "memory");
  }
}
template <int tile>
SLUICE_INLINE void store_tile(void* p, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(tile) : "memory");
}

// Elements of `sum` are F32: sum[i][j] += the sum over k of left[i][k] * right[k / 2][j][k % 2].
// The products with even k are added by fused multiply-adds from zero, in order; so are those with
// odd k; then sum += even + odd. Denormals count as zero and become zero.
struct Bf16Products {
  template <int sum, int left, int right>
  SLUICE_INLINE static void add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
  }
};

// Elements of `sum` are 32-bit integers: the same with left[i][k] * right[k / 4][j][k % 4].
struct Int8Products {
  template <int sum, int left, int right>
  SLUICE_INLINE static void add() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
  }
};

// Stores a register to one line of memory. The unit that stores tiles falls asleep after half a
// microsecond without work, and then takes 0.3 microseconds to wake
// (docs/cpu-kernel-figures.md#units-that-fall-asleep). A loop that stores seldom keeps it awake.
template <int tile>
SLUICE_INLINE void keep_storing(void* line) {
  store_tile<tile>(line, 0);
}

}  // namespace sluice::kernels
