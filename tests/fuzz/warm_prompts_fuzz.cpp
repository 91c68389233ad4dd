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
    // In the form that is not deeper than the input.
    const std::string again_text =
        chat->tools.empty() ? chat->messages
                            : "{\"messages\":" + chat->messages + ",\"tools\":" + chat->tools + "}";
    const auto again = parse_warm_chat(again_text, "fuzz");
    CHECK(again.has_value() && *again == *chat);
  }
  return 0;
}
