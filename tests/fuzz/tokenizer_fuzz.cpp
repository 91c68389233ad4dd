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
  // NULs separate files: tokenizer.json and its config, or vocab.json, config, merges.txt,
  // special_tokens_map.json and added_tokens.json.
  const auto [first, rest] = cut(input);
  const auto [config, legacy_rest] = cut(rest);
  const auto [merges, optional_rest] = cut(legacy_rest);
  const auto [special_tokens_map, added_tokens] = cut(optional_rest);
  std::string tokenizer_json(first);
  std::string config_json(config);
  if (!merges.empty()) {
    auto legacy = convert_legacy_files({first, merges, config, special_tokens_map, added_tokens});
    if (!legacy) return 0;
    tokenizer_json = std::move(legacy->tokenizer_json);
    config_json = std::move(legacy->tokenizer_config_json);
  }
  const auto loaded = Tokenizer::from_json(tokenizer_json, config_json);
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
