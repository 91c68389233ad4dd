#include "base/byte_stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace sluice {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

TEST(ByteStreamTest, ReadsWhatWasWritten) {
  ByteWriter writer;
  writer.u32(0x12345678);
  writer.text("text");
  writer.text("");
  writer.hash({7, 9});
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, kMost})
    writer.varint(value);
  writer.align(16);
  EXPECT_EQ(writer.size() % 16, 0U);
  EXPECT_EQ(writer.written()[0], std::byte{0x78}) << "the lowest byte comes first";

  ByteReader reader(writer.written());
  EXPECT_EQ(reader.u32(), 0x12345678U);
  EXPECT_EQ(reader.text(), "text");
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(reader.hash(), (Hash128{7, 9}));
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, kMost})
    EXPECT_EQ(reader.varint(), value);
  EXPECT_TRUE(reader.ok());
}

TEST(ByteStreamTest, ReadsBeyondTheEndGiveNothingAndAreRemembered) {
  ByteWriter writer;
  writer.text("text");
  for (std::size_t length = 0; length < writer.size(); ++length) {
    ByteReader reader(std::span(writer.written()).first(length));
    EXPECT_EQ(reader.text(), "");
    EXPECT_FALSE(reader.ok());
    EXPECT_EQ(reader.u64(), 0U);
    EXPECT_EQ(reader.varint(), 0U);
    EXPECT_EQ(reader.left(), 0U);
  }
}

TEST(ByteStreamTest, RefusesNumbersOfMoreThan64Bits) {
  const std::vector<std::byte> endless(20, std::byte{0xff});
  ByteReader reader(endless);
  EXPECT_EQ(reader.varint(), 0U);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace sluice
