// Any bytes as a tokenizer.json give an error, or a tokenizer that encodes and decodes safely and
// whose streaming decoder gives the same text as decode().
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/legacy_files.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kTexts[] = {
    "hello  world\n 123 don't <s>a</s>", "\u00e9e\u0301 \u4e2d\u6587 \U0001F600\u200d \u2581x",
    "\t\r\n  \u3000 ''s 12,345.6 \u0130\uFB01\u1100\u1161\u11A7", ""};

std::pair<std::string_view, std::string_view> cut(std::string_view text) {
  const std::size_t end = text.find('\0');
  if (end == std::string_view::npos) return {text, {}};
  return {text.substr(0, end), text.substr(end + 1)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // NULs separate files: tokenizer.json and its config, or vocab.json, config and merges.txt.
  const auto [first, rest] = cut(input);
  const auto [config, merges] = cut(rest);
  std::string converted(first);
  if (!merges.empty()) {
    auto legacy = legacy_to_tokenizer_json(first, merges, config);
    if (!legacy) return 0;
    converted = *std::move(legacy);
  }
  const auto loaded = Tokenizer::from_json(converted, config);
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
