// Any bytes as a prompt, and as token ids, for small tokenizers of each kind. Invalid UTF-8 is
// refused, valid text survives encode and decode, streaming gives the same text as decode(), and
// stop strings cut the text at the same place however it arrives.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace sluice;

constexpr const char* kWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Target {
  Tokenizer tokenizer;
  bool exact;  // no normalizer: decode(encode(text)) is the text
};

Tokenizer load(const nlohmann::json& definition) {
  auto loaded = Tokenizer::from_json(dump_json(definition));
  if (!loaded) std::abort();
  return *std::move(loaded);
}

nlohmann::json with_pattern(const std::string& regex) {
  nlohmann::json definition = byte_level_json();
  definition["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", regex}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  return definition;
}

std::vector<Target> make_targets() {
  std::vector<Target> targets;
  targets.push_back({load(byte_level_json()), true});
  targets.push_back({load(with_pattern(kWords)), true});
  targets.push_back({load(with_pattern(std::string("(?:") + kWords + ")")), true});
  nlohmann::json normalized = with_pattern(kWords);
  normalized["normalizer"] = {{"type", "NFC"}};
  targets.push_back({load(normalized), false});
  normalized["normalizer"] = {{"type", "Sequence"},
                              {"normalizers",
                               {{{"type", "NFKD"}},
                                {{"type", "StripAccents"}},
                                {{"type", "Lowercase"}},
                                {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}}}};
  normalized["added_tokens"][0]["normalized"] = true;
  normalized["added_tokens"][1]["lstrip"] = true;
  normalized["added_tokens"][1]["rstrip"] = true;
  normalized["added_tokens"][1]["single_word"] = true;
  targets.push_back({load(normalized), false});
  targets.push_back({load(sentencepiece_json()), false});
  return targets;
}

void require(bool condition) {
  if (!condition) std::abort();
}

void check_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const auto skip : {SkipSpecialTokens::kNo, SkipSpecialTokens::kYes}) {
    StreamingDetokenizer stream(tokenizer, skip);
    std::string streamed;
    for (const TokenId id : ids) {
      std::string part;
      stream.push(id, part);
      require(!utf8::find_invalid(part));
      streamed += part;
    }
    stream.finish(streamed);
    require(!utf8::find_invalid(streamed));
    require(streamed == tokenizer.decode(ids, skip));
  }
}

void check_stops(std::string_view text, std::size_t step) {
  const std::size_t half = text.size() / 2;
  std::vector<std::string> stops = {"\nUser:", std::string(text.substr(half, 3))};
  if (stops.back().empty()) stops.pop_back();
  auto whole = StopMatcher::create(stops, StopText::kExclude);
  auto parts = StopMatcher::create(stops, StopText::kExclude);
  std::string from_whole;
  std::string from_parts;
  if (!whole->push(text, from_whole)) whole->finish(from_whole);
  bool stopped = false;
  for (std::size_t at = 0; at < text.size() && !stopped; at += step) {
    stopped = parts->push(text.substr(at, step), from_parts);
  }
  if (!stopped) parts->finish(from_parts);
  require(from_whole == from_parts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Target> targets = make_targets();
  if (size == 0) return 0;
  const Target& target = targets[data[0] % targets.size()];
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  check_stops(text, 1 + data[0] % 7);

  const auto ids = target.tokenizer.encode(text);
  require(ids.has_value() == !utf8::find_invalid(text));
  if (ids) {
    check_stream(target.tokenizer, *ids);
    if (target.exact) {
      require(target.tokenizer.decode(*ids, SkipSpecialTokens::kNo) == text);
    }
    EncodeScratch scratch;
    std::vector<TokenId> again;
    require(target.tokenizer.encode(std::string(1000, 'x'), {}, scratch, again).has_value());
    require(target.tokenizer.encode(text, {}, scratch, again).has_value() && again == *ids);
  }

  std::vector<TokenId> raw;
  for (std::size_t i = 1; i + 1 < size; i += 2) raw.push_back(data[i] << 8 | data[i + 1]);
  for (TokenId& id : raw) id %= target.tokenizer.vocab_size() + 3;
  check_stream(target.tokenizer, raw);
  return 0;
}
