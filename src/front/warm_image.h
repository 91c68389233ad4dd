// The section of a snapshot with warm prompts: the chats, their tokens, and the contents of their
// KV blocks. Decoding checks all bounds; it reads contents where they lie.
//
//   u32 prompts | u32 block_size | u64 block_bytes
//   prompt:  text name | text messages | text tools | u32 tokens | u32 each
//   u32 blocks
//   block:   u32 prompt | u32 index | u32 group        zeros up to a multiple of 64
//   contents of each block, block_bytes
//
// Plain data and functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "front/warm_chat.h"

namespace sluice {

// The block at `index` of a prompt, in one group of layers.
struct WarmBlockPlace {
  std::uint32_t prompt = 0;
  std::uint32_t index = 0;
  std::uint32_t group = 0;
};

struct WarmImage {
  struct Prompt {
    WarmChat chat;
    std::vector<TokenId> tokens;  // whole blocks
  };
  std::uint32_t block_size = 0;   // tokens
  std::uint64_t block_bytes = 0;  // of one group
  std::vector<Prompt> prompts;
  std::vector<WarmBlockPlace> blocks;
  std::span<const std::byte> contents;  // block_bytes for each of `blocks`

  std::span<const std::byte> contents_of(std::size_t block) const {
    return contents.subspan(block * block_bytes, block_bytes);
  }
};

std::vector<std::byte> encode_warm_image(const WarmImage& image);
// The result refers to `bytes`. kInvalidArgument says what is wrong.
Result<WarmImage> decode_warm_image(std::span<const std::byte> bytes);

}  // namespace sluice
