#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/support/sanitized.h"
#include "tokenizer/image_builder.h"
#include "tokenizer/image_layout.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/test_random.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// A tokenizer with every kind of step, flag and pattern in its image.
nlohmann::json rich_json() {
  nlohmann::json definition = byte_level_json();
  const auto split = [](const nlohmann::json& pattern, const char* behavior, bool invert) {
    return nlohmann::json{
        {"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
  };
  definition["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "h"}},
        {{"type", "Replace"}, {"pattern", {{"String", "xx"}}}, {"content", "y"}},
        {{"type", "Replace"}, {"pattern", {{"Regex", "q+"}}}, {"content", "q"}},
        {{"type", "NFC"}},
        {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}},
        {{"type", "StripAccents"}},
        {{"type", "Lowercase"}}}}};
  definition["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {split({{"Regex", "[a-m]+|[n-z]+"}}, "MergedWithPrevious", true),
        split({{"Regex", "[0-9][0-9][0-9]"}}, "Isolated", false),
        split({{"String", "--"}}, "MergedWithNext", false),
        {{"type", "Digits"}, {"individual_digits", true}},
        {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}},
        {{"type", "FixedLength"}, {"length", 7}},
        {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}}}}};
  definition["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"<|bos|>", kBos}}, {"sep", {"<|end|>", kEnd}}};
  definition["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {{{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}},
        {{"type", "Strip"}, {"content", "~"}, {"start", 1}, {"stop", 2}},
        {{"type", "ByteLevel"}},
        {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "ba"}},
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  definition["added_tokens"][0]["normalized"] = true;
  definition["added_tokens"][1]["lstrip"] = true;
  definition["added_tokens"][1]["rstrip"] = true;
  definition["added_tokens"][1]["single_word"] = true;
  definition["added_tokens"].push_back(added_token(400, "<|end|>more", false));
  return definition;
}

const std::vector<std::string> kImageTexts = {
    "hello  world 123456 <|end|> x", "\u00e9e\u0301 \u4e2d\u6587 \U0001F600\u200d \u2581the ab",
    " xxqqq--AB <|bos|>~~ 12_34 <|end|>more", ""};

Tokenizer loaded(const nlohmann::json& definition) {
  auto tokenizer = Tokenizer::from_json(dump_json(definition), R"({"eos_token": "<|end|>"})");
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

// The bytes of an image at another address, changed by a test.
class ImageCopy {
 public:
  explicit ImageCopy(std::span<const std::byte> image) : block_(image.size()) {
    std::memcpy(block_.data(), image.data(), image.size());
  }
  std::span<std::byte> bytes() { return {block_.data(), block_.size()}; }
  Result<Tokenizer> open() { return Tokenizer::from_image(bytes(), nullptr); }

 private:
  ZeroedBlock block_;
};

void expect_equal(const Tokenizer& a, const Tokenizer& b) {
  for (const std::string& text : kImageTexts) {
    const auto ids = a.encode(text);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, *b.encode(text)) << text;
    EXPECT_EQ(a.decode(*ids, SkipSpecialTokens::kNo), b.decode(*ids, SkipSpecialTokens::kNo));
    EXPECT_EQ(a.decode(*ids, SkipSpecialTokens::kYes), b.decode(*ids, SkipSpecialTokens::kYes));
    EXPECT_EQ(a.min_tokens(text.size()), b.min_tokens(text.size()));
  }
  ASSERT_EQ(a.vocab_size(), b.vocab_size());
  for (TokenId id = -1; id <= a.vocab_size(); ++id) {
    EXPECT_EQ(a.token_text(id), b.token_text(id));
    EXPECT_EQ(a.token_bytes(id), b.token_bytes(id));
    if (!a.token_text(id).empty()) {
      EXPECT_EQ(b.id_of(a.token_text(id)), id);
    }
  }
  EXPECT_EQ(a.bos_id(), b.bos_id());
  EXPECT_EQ(a.eos_id(), b.eos_id());
}

TEST(TokenizerImage, RestoredTokenizersEqualLoadedOnes) {
  for (const auto& definition : {byte_level_json(), sentencepiece_json(), rich_json()}) {
    const Tokenizer original = loaded(definition);
    ImageCopy copy(original.image());
    const auto restored = copy.open();
    ASSERT_TRUE(restored) << restored.error().message;
    expect_equal(original, *restored);
    EXPECT_EQ(restored->image().data(), copy.bytes().data());
  }
}

TEST(TokenizerImage, SameFilesGiveSameBytes) {
  for (const auto& definition : {byte_level_json(), sentencepiece_json(), rich_json()}) {
    const Tokenizer first = loaded(definition);
    const Tokenizer second = loaded(definition);
    EXPECT_TRUE(std::ranges::equal(first.image(), second.image()));
  }
}

TEST(TokenizerImage, OwnerLivesAsLongAsTheTokenizer) {
  const Tokenizer original = loaded(byte_level_json());
  auto owner = std::make_shared<ImageCopy>(original.image());
  const std::weak_ptr<ImageCopy> watch = owner;
  {
    const auto bytes = owner->bytes();
    const auto restored = Tokenizer::from_image(bytes, std::move(owner));
    ASSERT_TRUE(restored);
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(TokenizerImage, HeadersAreCheckedByName) {
  const Tokenizer original = loaded(byte_level_json());
  const auto error_of = [&](std::size_t offset, std::uint32_t value) {
    ImageCopy copy(original.image());
    std::memcpy(copy.bytes().data() + offset, &value, sizeof value);
    const auto opened = copy.open();
    EXPECT_FALSE(opened);
    return opened ? Error{} : opened.error();
  };
  EXPECT_THAT(error_of(0, 0).message, HasSubstr("this is none"));
  EXPECT_THAT(error_of(offsetof(ImageHeader, byte_order), 0x04030201).message,
              HasSubstr("another byte order"));
  const Error version = error_of(offsetof(ImageHeader, version), kImageVersion + 1);
  EXPECT_EQ(version.code, ErrorCode::kUnsupported);
  EXPECT_EQ(version.message,
            "tokenizer image: version 2; this program reads version 1. Make the image again");
  EXPECT_THAT(error_of(offsetof(ImageHeader, bytes), 77).message, HasSubstr("instead of 77"));
  EXPECT_THAT(error_of(offsetof(ImageHeader, sections), 1).message,
              HasSubstr("outside of the image"));
}

TEST(TokenizerImage, TruncatedImagesAreRefused) {
  const Tokenizer original = loaded(byte_level_json());
  for (std::size_t size = 0; size < original.image().size(); size += 61) {
    ImageCopy copy(original.image().first(size));
    ASSERT_FALSE(copy.open()) << size;
    // Also with a header that agrees.
    if (size < sizeof(ImageHeader)) continue;
    const std::uint64_t bytes = size;
    std::memcpy(copy.bytes().data() + offsetof(ImageHeader, bytes), &bytes, sizeof bytes);
    ASSERT_FALSE(copy.open()) << size;
  }
}

// Whatever is in the bytes: an error, or a tokenizer that works within them.
TEST(TokenizerImage, FlippedBytesAreSafe) {
  TestRandom rng(17);
  std::size_t refused = 0;
  for (const auto& definition : {sentencepiece_json(), rich_json()}) {
    const Tokenizer original = loaded(definition);
    ImageCopy copy(original.image());
    for (std::size_t at = 0; at < copy.bytes().size(); at += kSanitized ? 4 : 1) {
      const auto flip = static_cast<std::byte>(1 + rng() % 255);
      copy.bytes()[at] ^= flip;
      if (const auto tokenizer = copy.open()) {
        for (const std::string& text : kImageTexts) {
          const auto ids = tokenizer->encode(text);
          if (!ids) continue;
          for (const TokenId id : *ids) {
            ASSERT_TRUE(id >= 0 && id < tokenizer->vocab_size()) << "byte " << at;
            (void)tokenizer->token_bytes(id);
          }
          (void)tokenizer->decode(*ids, SkipSpecialTokens::kYes);
        }
      } else {
        ++refused;
        ASSERT_THAT(tokenizer.error().message, HasSubstr("tokenizer image: "));
      }
      copy.bytes()[at] ^= flip;
    }
    expect_equal(original, *copy.open());
  }
  EXPECT_GT(refused, static_cast<std::size_t>(rounds(1000)));
}

TEST(TokenizerImage, PatternsAreCompiledWhenATextNeedsThem) {
  nlohmann::json definition = byte_level_json();
  definition["pre_tokenizer"] = {{"type", "Split"},
                                 {"pattern", {{"Regex", "(?:abc)"}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}};
  const Tokenizer original = loaded(definition);
  ImageCopy copy(original.image());
  const std::string_view pattern = "(?:abc)";
  const auto at = std::search(copy.bytes().begin(), copy.bytes().end(),
                              reinterpret_cast<const std::byte*>(pattern.data()),
                              reinterpret_cast<const std::byte*>(pattern.data() + pattern.size()));
  ASSERT_NE(at, copy.bytes().end());
  *at = std::byte{')'};
  const auto restored = copy.open();
  ASSERT_TRUE(restored);
  const auto ids = restored->encode("hello");
  ASSERT_FALSE(ids);
  EXPECT_THAT(ids.error().message, HasSubstr("regular expression"));
}

}  // namespace
}  // namespace sluice
