#include "front/warm_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

std::vector<std::byte> small_image() {
  WarmImage image;
  image.block_size = 2;
  image.block_bytes = 64;
  image.prompts.push_back({{"a.json", "[1]", ""}, {7, 8, 9, 10}});
  image.prompts.push_back({{"b.json", "[]", "[2]"}, {1, 2}});
  image.blocks = {{0, 0, 0}, {0, 1, 0}, {1, 0, 1}};
  std::vector<std::byte> contents(3 * 64);
  for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<std::byte>(i);
  image.contents = contents;
  return encode_warm_image(image);
}

TEST(WarmImage, ComesBack) {
  const auto bytes = small_image();
  const auto image = decode_warm_image(bytes);
  ASSERT_TRUE(image) << image.error().message;
  ASSERT_EQ(image->prompts.size(), 2U);
  EXPECT_EQ(image->prompts[0].chat.name, "a.json");
  EXPECT_EQ(image->prompts[1].chat.tools, "[2]");
  EXPECT_THAT(image->prompts[0].tokens, testing::ElementsAre(7, 8, 9, 10));
  ASSERT_EQ(image->blocks.size(), 3U);
  EXPECT_EQ(image->blocks[2].group, 1U);
  EXPECT_EQ(image->contents_of(1)[0], std::byte(64));
  EXPECT_EQ(encode_warm_image(*image), bytes);
}

TEST(WarmImage, EveryCutIsRefused) {
  const auto bytes = small_image();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_warm_image(std::span(bytes).first(size))) << size;
  }
  auto longer = bytes;
  longer.push_back(std::byte(0));
  EXPECT_FALSE(decode_warm_image(longer));
}

TEST(WarmImage, BlocksOutsideTheirPromptAreRefused) {
  WarmImage image;
  image.block_size = 2;
  image.block_bytes = 64;
  image.prompts.push_back({{"a", "[]", ""}, {1, 2}});
  const std::vector<std::byte> contents(64);
  image.contents = contents;
  for (const WarmBlockPlace place : {WarmBlockPlace{1, 0, 0}, WarmBlockPlace{0, 1, 0}}) {
    image.blocks = {place};
    EXPECT_FALSE(decode_warm_image(encode_warm_image(image)));
  }
  image.blocks = {{0, 0, 0}};
  EXPECT_TRUE(decode_warm_image(encode_warm_image(image)));
  image.block_size = 3;
  EXPECT_FALSE(decode_warm_image(encode_warm_image(image)));
}

}  // namespace
}  // namespace sluice
