#include "tests/support/tiles/tile_emulator.h"

#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tests/support/tiles/tile_instruction.h"

namespace sluice::test {
namespace {

constexpr int kTiles = 8;
constexpr int kRows = 16;
constexpr int kRowBytes = 64;

struct Tile {
  alignas(kRowBytes) std::uint8_t data[kRows][kRowBytes] = {};
  int rows = 0;
  int row_bytes = 0;  // what is behind them is zero, and so are further rows
};

struct TileRegisters {
  bool configured = false;
  Tile tiles[kTiles];
};

constinit thread_local TileRegisters registers_of_thread;

// In a handler: nothing but what a handler may call.
[[noreturn]] void refuse(std::string_view reason) {
  constexpr std::string_view kName = "emulated AMX: ";
  [[maybe_unused]] auto written = write(STDERR_FILENO, kName.data(), kName.size());
  written = write(STDERR_FILENO, reason.data(), reason.size());
  written = write(STDERR_FILENO, "\n", 1);
  std::abort();
}

// As `ldtilecfg` reads it.
struct Configuration {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
static_assert(sizeof(Configuration) == 64);

void configure(TileRegisters& registers, std::uint64_t address) {
  Configuration config;
  std::memcpy(&config, reinterpret_cast<const void*>(address), sizeof(config));
  const auto is_zero = [](auto v) { return v == 0; };
  if (config.palette != 1) refuse("a configuration whose palette is not 1");
  if (config.start_row != 0) refuse("a configuration that starts at a later row");
  if (!std::all_of(std::begin(config.reserved), std::end(config.reserved), is_zero) ||
      !std::all_of(config.row_bytes + kTiles, std::end(config.row_bytes), is_zero) ||
      !std::all_of(config.rows + kTiles, std::end(config.rows), is_zero)) {
    refuse("a configuration whose reserved bytes are not zero");
  }
  registers = {};
  registers.configured = true;
  for (int i = 0; i < kTiles; ++i) {
    Tile& tile = registers.tiles[i];
    tile.rows = config.rows[i];
    tile.row_bytes = config.row_bytes[i];
    if (tile.rows > kRows || tile.row_bytes > kRowBytes) refuse("a tile that is too large");
    if ((tile.rows == 0) != (tile.row_bytes == 0)) refuse("a tile with rows or columns only");
  }
}

void clear(Tile& tile) { std::memset(tile.data, 0, sizeof(tile.data)); }

void load(Tile& tile, const TileInstruction& instruction) {
  clear(tile);
  for (int i = 0; i < tile.rows; ++i) {
    const std::uint64_t row =
        instruction.address + static_cast<std::uint64_t>(i) * instruction.stride;
    std::memcpy(tile.data[i], reinterpret_cast<const void*>(row),
                static_cast<std::size_t>(tile.row_bytes));
  }
}

void store(const Tile& tile, const TileInstruction& instruction) {
  for (int i = 0; i < tile.rows; ++i) {
    const std::uint64_t row =
        instruction.address + static_cast<std::uint64_t>(i) * instruction.stride;
    std::memcpy(reinterpret_cast<void*>(row), tile.data[i],
                static_cast<std::size_t>(tile.row_bytes));
  }
}

int group(const Tile& tile, int row, int k) {
  int values = 0;
  std::memcpy(&values, tile.data[row] + 4 * k, sizeof(values));
  return values;
}

// Each group of 32 bits along K is a pair of BF16: an even and an odd place.
__attribute__((target("avx512f"))) void add_bf16(Tile& sum, const Tile& left, const Tile& right) {
  const __m512i odd_half = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (int m = 0; m < sum.rows; ++m) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (int k = 0; k < left.row_bytes / 4; ++k) {
      const __m512i x = _mm512_set1_epi32(group(left, m, k));
      const __m512i w = _mm512_load_si512(right.data[k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, odd_half)),
                            _mm512_castsi512_ps(_mm512_and_si512(w, odd_half)), odd);
    }
    const __m512 before = _mm512_load_ps(sum.data[m]);
    _mm512_store_ps(sum.data[m], _mm512_add_ps(before, _mm512_add_ps(even, odd)));
  }
}

// Each group of 32 bits along K holds four signed codes. Sums wrap around.
__attribute__((target("avx512f"))) void add_int8(Tile& sum, const Tile& left, const Tile& right) {
  for (int k = 0; k < left.row_bytes / 4; ++k) {
    const __m512i w = _mm512_load_si512(right.data[k]);
    for (int m = 0; m < sum.rows; ++m) {
      const __m512i x = _mm512_set1_epi32(group(left, m, k));
      __m512i total = _mm512_load_si512(sum.data[m]);
      for (int i = 0; i < 4; ++i) {
        const __m128i up = _mm_cvtsi32_si128(24 - 8 * i);
        const __m512i x_code = _mm512_srai_epi32(_mm512_sll_epi32(x, up), 24);
        const __m512i w_code = _mm512_srai_epi32(_mm512_sll_epi32(w, up), 24);
        total = _mm512_add_epi32(total, _mm512_mullo_epi32(x_code, w_code));
      }
      _mm512_store_si512(sum.data[m], total);
    }
  }
}

void check_product(const Tile& sum, const Tile& left, const Tile& right,
                   const TileInstruction& instruction) {
  if (instruction.tile == instruction.left || instruction.tile == instruction.right ||
      instruction.left == instruction.right) {
    refuse("a product that names a tile twice");
  }
  if (left.rows != sum.rows || left.row_bytes != 4 * right.rows ||
      right.row_bytes != sum.row_bytes) {
    refuse("a product of tiles whose shapes do not fit");
  }
  if (left.row_bytes % 4 != 0 || right.row_bytes % 4 != 0)
    refuse("a product of rows that are not whole groups of 32 bits");
}

void run(const TileInstruction& instruction) {
  TileRegisters& registers = registers_of_thread;
  if (instruction.operation == TileOperation::kConfigure) {
    configure(registers, instruction.address);
    return;
  }
  if (instruction.operation == TileOperation::kRelease) {
    registers.configured = false;
    return;
  }
  if (!registers.configured) refuse("a tile is used, but tiles are not configured");
  Tile& tile = registers.tiles[instruction.tile];
  if (tile.rows == 0) refuse("a tile is used that is not configured");
  const Tile& left = registers.tiles[instruction.left];
  const Tile& right = registers.tiles[instruction.right];
  switch (instruction.operation) {
    case TileOperation::kZero: clear(tile); return;
    case TileOperation::kLoad: load(tile, instruction); return;
    case TileOperation::kStore: store(tile, instruction); return;
    case TileOperation::kAddBf16:
      check_product(tile, left, right, instruction);
      add_bf16(tile, left, right);
      return;
    case TileOperation::kAddInt8:
      check_product(tile, left, right, instruction);
      add_int8(tile, left, right);
      return;
    default: return;
  }
}

constexpr std::array kGeneral = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                 REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                 REG_R12, REG_R13, REG_R14, REG_R15};

void handle(int signal, siginfo_t*, void* context) {
  auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
  GeneralRegisters general;
  for (std::size_t i = 0; i < kGeneral.size(); ++i) {
    general[i] = static_cast<std::uint64_t>(machine.gregs[kGeneral[i]]);
  }
  // The next instruction is often one, too, and signals take most of the time.
  bool any = false;
  for (;;) {
    const auto place = static_cast<std::uint64_t>(machine.gregs[REG_RIP]);
    const auto instruction =
        parse_tile_instruction(reinterpret_cast<const std::uint8_t*>(place), place, general);
    if (!instruction) break;
    // Denormals are taken for zero and become zero, whatever the program has set; others round to
    // even. The program's setting comes back with its registers.
    constexpr unsigned kMasked = 0x1F80;
    constexpr unsigned kDenormalsAreZero = 0x8040;
    if (!any) _mm_setcsr(kMasked | kDenormalsAreZero);
    any = true;
    run(*instruction);
    machine.gregs[REG_RIP] += instruction->size;
  }
  // Not of AMX: it is met again, with what happens by default.
  if (!any) ::signal(signal, SIG_DFL);
}

bool emulate() {
  const auto isas = available_cpu_isas();
  if (std::find(isas.begin(), isas.end(), CpuIsa::kAmx) != isas.end()) return false;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGILL, &action, nullptr) != 0) return false;
  count_amx_as_emulated();
  return true;
}

}  // namespace

std::vector<CpuIsa> tested_cpu_isas() {
  [[maybe_unused]] static const bool emulated = emulate();
  return available_cpu_isas();
}

}  // namespace sluice::test
