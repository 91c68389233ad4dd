// The encoding of AMX's instructions: which of them a program stopped at, and with which operands.
// Threads: free functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace sluice::test {

enum class TileOperation : std::uint8_t {
  kConfigure,  // ldtilecfg
  kRelease,    // tilerelease
  kZero,       // tilezero
  kLoad,       // tileloadd, tileloaddt1
  kStore,      // tilestored
  kAddBf16,    // tdpbf16ps
  kAddInt8,    // tdpbssd
};

struct TileInstruction {
  TileOperation operation{};
  int size = 0;             // bytes of code
  int tile = 0;             // loaded, stored or added to
  int left = 0, right = 0;  // factors
  std::uint64_t address = 0;
  std::uint64_t stride = 0;  // bytes between rows; wraps around for negative ones
};

// The general registers in the order of their encoding: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi,
// r8...
using GeneralRegisters = std::array<std::uint64_t, 16>;

// The instruction at `code`, of which 15 bytes can be read, at address `place`; none where it is no
// instruction of AMX for BF16 and INT8 that kernels use.
std::optional<TileInstruction> parse_tile_instruction(const std::uint8_t* code, std::uint64_t place,
                                                      const GeneralRegisters& registers);

}  // namespace sluice::test
