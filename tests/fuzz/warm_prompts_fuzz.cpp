// Warm prompts: the section of a snapshot, and the chat files that operators write. An accepted
// section is encoded to the same bytes again; an accepted chat is read back as it was.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "front/warm_chat.h"
#include "front/warm_image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto image = decode_warm_image(bytes)) {
    const auto again = encode_warm_image(*image);
    CHECK(std::ranges::equal(again, bytes));
    for (std::size_t i = 0; i < image->blocks.size(); ++i) {
      CHECK(image->contents_of(i).size() == image->block_bytes);
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto chat = parse_warm_chat(text, "fuzz")) {
    std::string object = "{\"messages\":" + chat->messages;
    if (!chat->tools.empty()) object += ",\"tools\":" + chat->tools;
    const auto again = parse_warm_chat(object + "}", "fuzz");
    CHECK(again.has_value() && *again == *chat);
  }
  return 0;
}
