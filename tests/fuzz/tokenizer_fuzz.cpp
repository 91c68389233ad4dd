// Any bytes as a tokenizer.json: refused with an error, or a tokenizer that encodes and decodes
// without harm, and streams what it decodes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kTexts[] = {
    "hello  world\n 123 don't <s>a</s>", "\u00e9e\u0301 \u4e2d\u6587 \U0001F600\u200d \u2581x",
    "\t\r\n  \u3000 ''s 12,345.6 \u0130\uFB01\u1100\u1161\u11A7", ""};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // What follows a NUL is the tokenizer_config.json.
  const std::size_t end = input.find('\0');
  const auto loaded = Tokenizer::from_json(
      input.substr(0, end), end == std::string_view::npos ? "" : input.substr(end + 1));
  if (!loaded) {
    if (loaded.error().message.empty()) std::abort();
    return 0;
  }
  for (const std::string_view text : kTexts) {
    const auto ids = loaded->encode(text);
    if (!ids) continue;
    const std::string decoded = loaded->decode(*ids, SkipSpecialTokens::kNo);
    StreamingDetokenizer stream(*loaded, SkipSpecialTokens::kNo);
    std::string streamed;
    for (const TokenId id : *ids) {
      if (id < 0 || id >= loaded->vocab_size()) std::abort();
      stream.push(id, streamed);
      (void)loaded->token_bytes(id);
    }
    stream.finish(streamed);
    if (streamed != decoded) std::abort();
  }
  return 0;
}
