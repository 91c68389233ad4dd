#include "front/warm_image.h"

#include <utility>

#include "base/byte_stream.h"

namespace sluice {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint32_t kMaxBlockSize = 4096;  // as kv_layout.h allows

Error damaged(const char* what) { return invalid_argument(std::string("warm prompts: ") + what); }

Result<WarmImage::Prompt> read_prompt(ByteReader& in, std::uint32_t block_size) {
  WarmImage::Prompt prompt;
  prompt.chat.name = in.text();
  prompt.chat.messages = in.text();
  prompt.chat.tools = in.text();
  const std::uint32_t tokens = in.u32();
  if (!in.ok() || tokens > in.left() / sizeof(TokenId)) return damaged("a prompt is cut off");
  if (tokens % block_size != 0) return damaged("a prompt is not in whole blocks");
  prompt.tokens.reserve(tokens);
  for (std::uint32_t i = 0; i < tokens; ++i) {
    prompt.tokens.push_back(static_cast<TokenId>(in.u32()));
  }
  return prompt;
}

Status read_blocks(ByteReader& in, WarmImage& image) {
  const std::uint32_t count = in.u32();
  if (!in.ok() || count > in.left() / sizeof(WarmBlockPlace)) {
    return damaged("the list of blocks is cut off");
  }
  image.blocks.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t prompt = in.u32();
    const std::uint32_t index = in.u32();
    const WarmBlockPlace place{prompt, index, in.u32()};
    if (prompt >= image.prompts.size() ||
        index >= image.prompts[prompt].tokens.size() / image.block_size) {
      return damaged("a block lies outside its prompt");
    }
    image.blocks.push_back(place);
  }
  return {};
}

}  // namespace

std::vector<std::byte> encode_warm_image(const WarmImage& image) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(image.prompts.size()));
  out.u32(image.block_size);
  out.u64(image.block_bytes);
  for (const WarmImage::Prompt& prompt : image.prompts) {
    out.text(prompt.chat.name);
    out.text(prompt.chat.messages);
    out.text(prompt.chat.tools);
    out.u32(static_cast<std::uint32_t>(prompt.tokens.size()));
    for (const TokenId token : prompt.tokens) out.u32(static_cast<std::uint32_t>(token));
  }
  out.u32(static_cast<std::uint32_t>(image.blocks.size()));
  for (const WarmBlockPlace& place : image.blocks) {
    out.u32(place.prompt);
    out.u32(place.index);
    out.u32(place.group);
  }
  out.align(kAlignment);
  out.bytes(image.contents);
  return out.take();
}

Result<WarmImage> decode_warm_image(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  WarmImage image;
  const std::uint32_t prompts = in.u32();
  image.block_size = in.u32();
  image.block_bytes = in.u64();
  if (!in.ok()) return damaged("the head is cut off");
  if (image.block_size == 0 || image.block_size > kMaxBlockSize) {
    return damaged("the block size is out of range");
  }
  for (std::uint32_t i = 0; i < prompts; ++i) {
    ASSIGN_OR_RETURN(WarmImage::Prompt prompt, read_prompt(in, image.block_size));
    image.prompts.push_back(std::move(prompt));
  }
  RETURN_IF_ERROR(read_blocks(in, image));
  const std::size_t read = bytes.size() - in.left();
  const std::size_t padding = (kAlignment - read % kAlignment) % kAlignment;
  for (const std::byte zero : in.bytes(padding)) {
    if (zero != std::byte(0)) return damaged("the padding is not zero");
  }
  if (!in.ok()) return damaged("the contents of blocks are cut off");
  const std::size_t left = in.left();
  const bool fits = image.blocks.empty() ? left == 0
                                         : image.block_bytes > 0 && left % image.block_bytes == 0 &&
                                               left / image.block_bytes == image.blocks.size();
  if (!fits) return damaged("the contents do not have the size of the blocks");
  image.contents = in.bytes(left);
  return image;
}

}  // namespace sluice
