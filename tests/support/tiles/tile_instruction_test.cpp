// The parser against the assembler's encodings.
#include "tests/support/tiles/tile_instruction.h"

#include <gtest/gtest.h>

#include <optional>

// Fifteen bytes after each can be read.
#define SLUICE_CODE(name, text)                                             \
  asm(".pushsection .rodata\n" #name ":\n" text "\n.skip 16\n.popsection"); \
  extern "C" const std::uint8_t name[]

SLUICE_CODE(code_load, "tileloadd (%rax,%rcx,1), %tmm0");
SLUICE_CODE(code_load_high, "tileloadd 64(%r13,%r12,4), %tmm7");
SLUICE_CODE(code_load_stack, "tileloadd -1024(%rsp,%r15,8), %tmm3");
SLUICE_CODE(code_load_frame, "tileloadd (%rbp,%rdx,2), %tmm1");
SLUICE_CODE(code_load_rows_alike, "tileloadd (%rdx), %tmm2");
SLUICE_CODE(code_store, "tilestored %tmm5, 0x12345(%rdi,%r9,1)");
SLUICE_CODE(code_configure, "ldtilecfg (%rdi)");
SLUICE_CODE(code_configure_stack, "ldtilecfg 8(%rsp)");
SLUICE_CODE(code_configure_far, "ldtilecfg -0x200(%r12)");
SLUICE_CODE(code_configure_constant, "ldtilecfg 16(%rip)");
SLUICE_CODE(code_configure_fixed, "ldtilecfg 0x1000");
SLUICE_CODE(code_release, "tilerelease");
SLUICE_CODE(code_zero, "tilezero %tmm6");
SLUICE_CODE(code_bf16, "tdpbf16ps %tmm3, %tmm2, %tmm1");
SLUICE_CODE(code_int8, "tdpbssd %tmm7, %tmm0, %tmm4");
SLUICE_CODE(code_mixed_signs, "tdpbsud %tmm7, %tmm0, %tmm4");
SLUICE_CODE(code_unsigned, "tdpbuud %tmm7, %tmm0, %tmm4");
SLUICE_CODE(code_load_once, "tileloaddt1 (%rax,%rcx,1), %tmm0");
SLUICE_CODE(code_store_configuration, "sttilecfg (%rdi)");
SLUICE_CODE(code_undefined, "ud2");
SLUICE_CODE(code_vector, "vfmadd231ps %ymm1, %ymm2, %ymm3");

#undef SLUICE_CODE

namespace sluice::test {
namespace {

constexpr std::uint64_t kPlace = 0x400000;

// Each register holds a thousand times its number plus one.
GeneralRegisters numbered() {
  GeneralRegisters registers;
  for (std::size_t i = 0; i < registers.size(); ++i) registers[i] = 1000 * (i + 1);
  return registers;
}
constexpr std::uint64_t kRax = 1000, kRcx = 2000, kRdx = 3000, kRsp = 5000, kRbp = 6000,
                        kRdi = 8000, kR9 = 10000, kR12 = 13000, kR13 = 14000, kR15 = 16000;

std::optional<TileInstruction> parsed(const std::uint8_t* code) {
  return parse_tile_instruction(code, kPlace, numbered());
}

void expect_rows(const std::uint8_t* code, TileOperation operation, int size, int tile,
                 std::uint64_t address, std::uint64_t stride) {
  const auto instruction = parsed(code);
  ASSERT_TRUE(instruction);
  EXPECT_EQ(instruction->operation, operation);
  EXPECT_EQ(instruction->size, size);
  EXPECT_EQ(instruction->tile, tile);
  EXPECT_EQ(instruction->address, address);
  EXPECT_EQ(instruction->stride, stride);
}

void expect_product(const std::uint8_t* code, TileOperation operation, int tile, int left,
                    int right) {
  const auto instruction = parsed(code);
  ASSERT_TRUE(instruction);
  EXPECT_EQ(instruction->operation, operation);
  EXPECT_EQ(instruction->tile, tile);
  EXPECT_EQ(instruction->left, left);
  EXPECT_EQ(instruction->right, right);
}

TEST(TileInstruction, ReadsWhereRowsLie) {
  constexpr auto kLoad = TileOperation::kLoad;
  expect_rows(code_load, kLoad, 6, 0, kRax, kRcx);
  expect_rows(code_load_high, kLoad, 7, 7, kR13 + 64, 4 * kR12);
  expect_rows(code_load_stack, kLoad, 10, 3, kRsp - 1024, 8 * kR15);
  expect_rows(code_load_frame, kLoad, 7, 1, kRbp, 2 * kRdx);
  expect_rows(code_load_once, kLoad, 6, 0, kRax, kRcx);
  expect_rows(code_load_rows_alike, kLoad, 6, 2, kRdx, 0);
  expect_rows(code_store, TileOperation::kStore, 10, 5, kRdi + 0x12345, kR9);
}

TEST(TileInstruction, ReadsWhereConfigurationsLie) {
  constexpr auto kConfigure = TileOperation::kConfigure;
  expect_rows(code_configure, kConfigure, 5, 0, kRdi, 0);
  expect_rows(code_configure_stack, kConfigure, 7, 0, kRsp + 8, 0);
  expect_rows(code_configure_far, kConfigure, 10, 0, kR12 - 0x200, 0);
  expect_rows(code_configure_constant, kConfigure, 9, 0, kPlace + 9 + 16, 0);
  expect_rows(code_configure_fixed, kConfigure, 10, 0, 0x1000, 0);
}

TEST(TileInstruction, ReadsWhichTiles) {
  const auto release = parsed(code_release);
  ASSERT_TRUE(release);
  EXPECT_EQ(release->operation, TileOperation::kRelease);
  EXPECT_EQ(release->size, 5);
  const auto zero = parsed(code_zero);
  ASSERT_TRUE(zero);
  EXPECT_EQ(zero->operation, TileOperation::kZero);
  EXPECT_EQ(zero->tile, 6);
  expect_product(code_bf16, TileOperation::kAddBf16, 1, 2, 3);
  expect_product(code_int8, TileOperation::kAddInt8, 4, 0, 7);
}

TEST(TileInstruction, TakesNoOther) {
  for (const std::uint8_t* code :
       {code_mixed_signs, code_unsigned, code_store_configuration, code_undefined, code_vector}) {
    EXPECT_FALSE(parsed(code)) << static_cast<int>(code[3]);
  }
}

}  // namespace
}  // namespace sluice::test
