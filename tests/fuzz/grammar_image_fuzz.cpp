// Images of grammars: whatever decodes encodes to an image that decodes to the same one, and a
// matcher can use it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "grammar/grammar_image.h"
#include "grammar/grammar_matcher.h"

namespace {

using namespace sluice;

GrammarVocabularyPtr vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"ab", "abc", "{\"", "\":", "true", "12"}) tokens.emplace_back(word);
  return std::make_shared<GrammarVocabulary>(
      TokenTrie(tokens, static_cast<std::int32_t>(tokens.size())));
}

TokenId first_allowed(const std::vector<std::uint32_t>& mask) {
  for (std::size_t id = 0; id < mask.size() * 32; ++id) {
    if ((mask[id / 32] >> (id % 32) & 1U) != 0) return static_cast<TokenId>(id);
  }
  return -1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // An input makes masks that later ones must not find.
  const auto words = vocabulary();
  const auto grammar = decode_grammar(std::as_bytes(std::span(data, size)), words);
  if (!grammar) {
    CHECK(!grammar.error().message.empty());
    return 0;
  }
  const std::vector<std::byte> image = encode_grammar(**grammar);
  CHECK(image.size() <= grammar_image_bound(**grammar));
  const auto again = decode_grammar(image, words);
  CHECK(again.has_value() && encode_grammar(**again) == image);
  GrammarMatcher matcher;
  matcher.assign(*grammar);
  std::vector<std::uint32_t> mask(words->trie.mask_words());
  for (int i = 0; i < 8; ++i) {
    matcher.fill(mask);
    const TokenId token = first_allowed(mask);
    if (token < 0 || !matcher.accept(token)) break;
  }
  return 0;
}
