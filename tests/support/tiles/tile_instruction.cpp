#include "tests/support/tiles/tile_instruction.h"

#include <cstring>

namespace sluice::test {
namespace {

// The three-byte VEX prefix, the opcode and the ModRM byte.
struct Encoding {
  int r, x, b;      // high bits of the register, the index and the base
  int map;          // 2: opcodes after 0F 38
  int wide, extra;  // W and vvvv
  int length;       // L
  int prefix;       // 0: none, 1: 66, 2: F3, 3: F2
  int opcode;
  int mod, reg, rm;
};

std::optional<Encoding> parse_encoding(const std::uint8_t* code) {
  if (code[0] != 0xC4) return std::nullopt;
  const int first = ~code[1];
  const int second = code[2];
  return Encoding{.r = first >> 4 & 8,
                  .x = first >> 3 & 8,
                  .b = first >> 2 & 8,
                  .map = code[1] & 31,
                  .wide = second >> 7,
                  .extra = ~second >> 3 & 15,
                  .length = second >> 2 & 1,
                  .prefix = second & 3,
                  .opcode = code[3],
                  .mod = code[4] >> 6,
                  .reg = code[4] >> 3 & 7,
                  .rm = code[4] & 7};
}

std::optional<TileOperation> operation_of(const Encoding& e) {
  const bool memory = e.mod != 3;
  switch (e.opcode << 4 | e.prefix) {
    case 0x490:
      if (memory) return TileOperation::kConfigure;
      return e.reg == 0 && e.rm == 0 ? std::optional(TileOperation::kRelease) : std::nullopt;
    case 0x493: return memory ? std::nullopt : std::optional(TileOperation::kZero);
    case 0x4B1:  // with a hint for the caches
    case 0x4B3: return memory ? std::optional(TileOperation::kLoad) : std::nullopt;
    case 0x4B2: return memory ? std::optional(TileOperation::kStore) : std::nullopt;
    case 0x5C2: return memory ? std::nullopt : std::optional(TileOperation::kAddBf16);
    case 0x5E3: return memory ? std::nullopt : std::optional(TileOperation::kAddInt8);
    default: return std::nullopt;
  }
}

std::int32_t read_i32(const std::uint8_t* p) {
  std::int32_t value = 0;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// Adds the memory operand, whose bytes begin after ModRM.
void parse_address(const Encoding& e, const std::uint8_t* code, std::uint64_t place,
                   const GeneralRegisters& registers, TileInstruction& instruction) {
  int at = 5;
  std::uint64_t address = 0;
  bool has_base = true;
  bool after_code = false;  // relative to the next instruction
  if (e.rm == 4) {
    const int sib = code[at++];
    const int base = sib & 7;
    const int index = (sib >> 3 & 7) | e.x;
    has_base = base != 5 || e.mod != 0;
    if (has_base) address = registers[static_cast<std::size_t>(base | e.b)];
    if (index != 4) instruction.stride = registers[static_cast<std::size_t>(index)] << (sib >> 6);
  } else if (e.rm == 5 && e.mod == 0) {
    has_base = false;
    after_code = true;
  } else {
    address = registers[static_cast<std::size_t>(e.rm | e.b)];
  }
  std::int64_t offset = 0;
  if (e.mod == 1) {
    offset = static_cast<std::int8_t>(code[at]);
    at += 1;
  } else if (e.mod == 2 || !has_base) {
    offset = read_i32(code + at);
    at += 4;
  }
  instruction.size = at;
  instruction.address = address + static_cast<std::uint64_t>(offset);
  if (after_code) instruction.address += place + static_cast<std::uint64_t>(at);
}

}  // namespace

std::optional<TileInstruction> parse_tile_instruction(const std::uint8_t* code, std::uint64_t place,
                                                      const GeneralRegisters& registers) {
  const auto e = parse_encoding(code);
  if (!e || e->map != 2 || e->wide != 0 || e->length != 0) return std::nullopt;
  const auto operation = operation_of(*e);
  // There are eight tiles.
  if (!operation || e->r != 0 || e->extra >= 8) return std::nullopt;
  TileInstruction instruction;
  instruction.operation = *operation;
  instruction.size = 5;
  instruction.tile = e->reg;
  instruction.left = e->rm;
  instruction.right = e->extra;
  if (e->mod != 3) parse_address(*e, code, place, registers, instruction);
  return instruction;
}

}  // namespace sluice::test
