#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"
#include "base/work_pace.h"
#include "tests/support/sanitized.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/test_random.h"
#include "tokenizer/test_tokenizers.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer load(const json& definition, const std::string& config = "") {
  auto tokenizer = Tokenizer::from_json(dump_json(definition), config);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text,
                            const EncodeOptions& options = {}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return *ids;
}

TEST(ByteLevel, MergesWithinPieces) {
  const Tokenizer tokenizer = load(byte_level_json());
  EXPECT_THAT(ids_of(tokenizer, "hello world"), ElementsAre(kHello, kSpaceWorld));
  EXPECT_THAT(ids_of(tokenizer, "hello   world"), ElementsAre(kHello, kTwoSpaces, kSpaceWorld));
  EXPECT_THAT(ids_of(tokenizer, "he12"), ElementsAre(256, kTwelve));
  EXPECT_THAT(ids_of(tokenizer, "\u00e9"), ElementsAre(0xC3, 0xA9));
  EXPECT_TRUE(ids_of(tokenizer, "").empty());
}

TEST(ByteLevel, DecodesAndSkipsSpecialTokens) {
  const Tokenizer tokenizer = load(byte_level_json());
  const std::vector<TokenId> ids = {kBos, kHello, kSpaceWorld, kEnd};
  EXPECT_EQ(tokenizer.decode(ids, SkipSpecialTokens::kYes), "hello world");
  EXPECT_EQ(tokenizer.decode(ids, SkipSpecialTokens::kNo), "<|bos|>hello world<|end|>");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{-5, 1 << 20, kHello}, SkipSpecialTokens::kNo),
            "hello");
}

TEST(ByteLevel, InvalidBytesBecomeReplacementCharacters) {
  const Tokenizer tokenizer = load(byte_level_json());
  // An incomplete three-byte character is one damaged part, a lone continuation byte another.
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0xE2, 0x82, 'a', 0x80}, SkipSpecialTokens::kNo),
            "\uFFFDa\uFFFD");
}

TEST(ByteLevel, IgnoreMergesTakesWholePieces) {
  json definition = byte_level_json();
  definition["model"]["merges"] = json::array();
  EXPECT_EQ(ids_of(load(definition), "hello").size(), 5u);
  definition["model"]["ignore_merges"] = true;
  EXPECT_THAT(ids_of(load(definition), "hello world"), ElementsAre(kHello, kSpaceWorld));
}

TEST(ByteLevel, AddPrefixSpace) {
  json definition = byte_level_json();
  definition["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(ids_of(load(definition), "world<|end|> world"),
              ElementsAre(kSpaceWorld, kEnd, kSpaceWorld));
}

TEST(ByteLevel, StepsAfterByteLevelSeeTheLetters) {
  json definition = byte_level_json();
  definition["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}},
        {{"type", "Digits"}, {"individual_digits", true}}}}};
  definition["model"]["vocab"][byte_letter(0xC2) + byte_letter(0xB2)] = 267;
  definition["model"]["merges"].push_back(byte_letter(0xC2) + " " + byte_letter(0xB2));
  definition["added_tokens"] = json::array();
  // The letter of byte B2 is U+00B2, superscript two: a digit, so it is cut off from C2.
  EXPECT_THAT(ids_of(load(definition), "\u00b2"), ElementsAre(0xC2, 0xB2));
}

TEST(SentencePiece, MarksSpacesAndFallsBackToBytes) {
  const Tokenizer tokenizer = load(sentencepiece_json());
  const EncodeOptions bare{.add_special_tokens = AddSpecialTokens::kNo};
  EXPECT_THAT(ids_of(tokenizer, "the"), ElementsAre(1, kSpaceThe));
  EXPECT_THAT(ids_of(tokenizer, "the the", bare), ElementsAre(kSpaceThe, kSpaceThe));
  EXPECT_THAT(ids_of(tokenizer, "a\u20ac", bare),
              ElementsAre(kMark, kLetterA, kByteZero + 0xE2, kByteZero + 0x82, kByteZero + 0xAC));
  EXPECT_TRUE(ids_of(tokenizer, "", bare).empty());
}

TEST(SentencePiece, DecodeDropsOnlyTheFirstSpace) {
  const Tokenizer tokenizer = load(sentencepiece_json());
  EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, " the the"), SkipSpecialTokens::kYes), " the the");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{kSpaceThe, kSpaceThe}, SkipSpecialTokens::kYes),
            "the the");
}

TEST(SentencePiece, UnknownCharactersAreFusedWithoutByteTokens) {
  json definition = sentencepiece_json();
  definition["model"]["byte_fallback"] = false;
  const EncodeOptions bare{.add_special_tokens = AddSpecialTokens::kNo};
  EXPECT_THAT(ids_of(load(definition), "a!!b", bare),
              ElementsAre(kMark, kLetterA, 0, kLetterA + 1));
  definition["model"]["fuse_unk"] = false;
  EXPECT_THAT(ids_of(load(definition), "a!!b", bare),
              ElementsAre(kMark, kLetterA, 0, 0, kLetterA + 1));
  definition["model"].erase("unk_token");
  EXPECT_THAT(ids_of(load(definition), "a!!b", bare), ElementsAre(kMark, kAb));
}

TEST(SentencePiece, MergesMayEnterMarksAndThenNothingIsCut) {
  json definition = sentencepiece_json();
  const int id = kAb + 2;
  definition["model"]["vocab"]["b\u2581"] = id;
  definition["model"]["merges"].push_back({"b", "\u2581"});
  const EncodeOptions bare{.add_special_tokens = AddSpecialTokens::kNo};
  EXPECT_THAT(ids_of(load(definition), "b b", bare), ElementsAre(kMark, id, kLetterA + 1));
}

TEST(AddedTokens, SplitTheTextAndMayBeReadAsText) {
  const Tokenizer tokenizer = load(byte_level_json());
  EXPECT_THAT(ids_of(tokenizer, "hello<|end|>hello"), ElementsAre(kHello, kEnd, kHello));
  const EncodeOptions as_text{.parse_special_tokens = ParseSpecialTokens::kNo};
  const auto ids = ids_of(tokenizer, "<|end|>", as_text);
  EXPECT_EQ(ids.size(), 7u);
  EXPECT_EQ(tokenizer.decode(ids, SkipSpecialTokens::kYes), "<|end|>");
}

TEST(AddedTokens, Flags) {
  json definition = byte_level_json();
  definition["added_tokens"][1]["rstrip"] = true;
  EXPECT_THAT(ids_of(load(definition), "hello <|end|> \n hello"),
              ElementsAre(kHello, ' ', kEnd, kHello));
  definition["added_tokens"][1]["lstrip"] = true;
  EXPECT_THAT(ids_of(load(definition), "hello \t<|end|> hello"), ElementsAre(kHello, kEnd, kHello));
  definition = byte_level_json();
  definition["added_tokens"][1] = added_token(kEnd, "ell", false);
  EXPECT_THAT(ids_of(load(definition), "hello"), ElementsAre('h', kEnd, 'o'));
  definition["added_tokens"][1]["single_word"] = true;
  EXPECT_THAT(ids_of(load(definition), "hello ell"), ElementsAre(kHello, ' ', kEnd));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  json definition = byte_level_json();
  definition["normalizer"] = {{"type", "Lowercase"}};
  definition["added_tokens"][1] = added_token(kEnd, "STOP", false);
  EXPECT_EQ(ids_of(load(definition), "stop STOP").back(), kEnd);
  EXPECT_NE(ids_of(load(definition), "STOP stop").back(), kEnd);
  definition["added_tokens"][1]["normalized"] = true;
  EXPECT_THAT(ids_of(load(definition), "stopSTOPhello"), ElementsAre(kEnd, kEnd, kHello));
}

TEST(Config, BosAndEosTokens) {
  const std::string config =
      R"({"bos_token": "<|bos|>", "eos_token": {"content": "<|end|>"}, "add_bos_token": true})";
  const Tokenizer tokenizer = load(byte_level_json(), config);
  EXPECT_EQ(tokenizer.bos_id(), kBos);
  EXPECT_EQ(tokenizer.eos_id(), kEnd);
  EXPECT_THAT(ids_of(tokenizer, "hello"), ElementsAre(kBos, kHello));
  EXPECT_THAT(ids_of(tokenizer, "hello", {.add_special_tokens = AddSpecialTokens::kNo}),
              ElementsAre(kHello));
  const Tokenizer without = load(sentencepiece_json(), R"({"add_bos_token": false,
      "add_eos_token": true, "eos_token": "</s>"})");
  EXPECT_THAT(ids_of(without, "the"), ElementsAre(kSpaceThe, 2));
}

TEST(Vocabulary, AnswersByIdAndByText) {
  const Tokenizer tokenizer = load(byte_level_json());
  EXPECT_EQ(tokenizer.vocab_size(), kEnd + 1);
  EXPECT_EQ(tokenizer.token_text(kSpaceWorld), "\u0120world");
  EXPECT_EQ(tokenizer.token_text(kEnd), "<|end|>");
  EXPECT_EQ(tokenizer.token_text(kEnd + 1), "");
  EXPECT_EQ(tokenizer.token_text(-1), "");
  EXPECT_EQ(tokenizer.id_of("hello"), kHello);
  EXPECT_EQ(tokenizer.id_of("<|bos|>"), kBos);
  EXPECT_EQ(tokenizer.id_of("absent"), std::nullopt);
  EXPECT_EQ(tokenizer.decode(std::vector{kBos, kHello, kEnd}, SkipSpecialTokens::kYes), "hello");
  EXPECT_EQ(tokenizer.token_bytes(kSpaceWorld), " world");
  EXPECT_EQ(tokenizer.token_bytes(0xE2), "\xE2");
  EXPECT_EQ(load(sentencepiece_json()).token_bytes(kByteZero + 0xE2), "\xE2");
  EXPECT_EQ(load(sentencepiece_json()).token_bytes(kSpaceThe), " the");
}

TEST(Encode, RefusesInvalidUtf8ByOffset) {
  const Tokenizer tokenizer = load(byte_level_json());
  for (const auto& [text, offset] :
       std::vector<std::pair<std::string, int>>{{"ab\xFF", 2},
                                                {"\xC0\x80", 0},
                                                {"abc\xE2\x82", 3},
                                                {"\xED\xA0\x80", 0},
                                                {"\u20ac\xF4\x90\x80\x80", 3}}) {
    const auto ids = tokenizer.encode(text);
    ASSERT_FALSE(ids);
    EXPECT_EQ(ids.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ids.error().message, HasSubstr("byte offset " + std::to_string(offset)));
  }
}

// Random ids, the bytes of characters often among them, so that characters come in parts.
std::vector<TokenId> random_ids(TestRandom& rng, const Tokenizer& tokenizer, int first_byte) {
  const std::string text = "\u20ac\U0001F600\u00e9z\u4e2d";
  std::vector<TokenId> ids;
  for (std::size_t n = rng() % 24; n > 0; --n) {
    if (rng() % 3 == 0) {
      const std::size_t from = rng() % text.size();
      for (std::size_t i = from; i < text.size() && rng() % 6 != 0; ++i) {
        ids.push_back(first_byte + static_cast<unsigned char>(text[i]));
      }
    } else {
      ids.push_back(static_cast<TokenId>(rng() % (tokenizer.vocab_size() + 2u)));
    }
  }
  return ids;
}

bool is_whole(const std::string& text) { return parse_json(dump_json(json(text))) == json(text); }

TEST(Streaming, EqualsDecodeAndNeverGivesHalfACharacter) {
  TestRandom rng(7);
  for (const auto& [definition, first_byte] :
       std::vector<std::pair<json, int>>{{byte_level_json(), 0}, {sentencepiece_json(), 3}}) {
    const Tokenizer tokenizer = load(definition);
    for (int round = 0; round < 5000; ++round) {
      const auto ids = random_ids(rng, tokenizer, first_byte);
      const auto skip = round % 2 == 0 ? SkipSpecialTokens::kYes : SkipSpecialTokens::kNo;
      StreamingDetokenizer stream(tokenizer, skip);
      std::string all;
      for (const TokenId id : ids) {
        std::string part;
        stream.push(id, part);
        ASSERT_TRUE(is_whole(part)) << part;
        all += part;
      }
      stream.finish(all);
      ASSERT_TRUE(is_whole(all));
      ASSERT_EQ(all, tokenizer.decode(ids, skip));
    }
  }
}

TEST(Streaming, GivesCharactersAsSoonAsTheyAreComplete) {
  const Tokenizer tokenizer = load(sentencepiece_json());
  StreamingDetokenizer stream(tokenizer, SkipSpecialTokens::kYes);
  std::string out;
  for (const int byte : {0xE2, 0x82}) stream.push(kByteZero + byte, out);
  EXPECT_EQ(out, "");
  stream.push(kByteZero + 0xAC, out);
  EXPECT_EQ(out, "\u20ac");
  stream.push(kByteZero + 0xE2, out);
  stream.push(kLetterA, out);
  EXPECT_EQ(out, "\u20ac\uFFFDa");
}

TEST(Streaming, ContinuesAPromptWithItsSpace) {
  const Tokenizer tokenizer = load(sentencepiece_json());
  StreamingDetokenizer stream(tokenizer, SkipSpecialTokens::kYes);
  stream.start_after(std::vector<TokenId>{1, kSpaceThe});
  std::string out;
  stream.push(kSpaceThe, out);
  stream.finish(out);
  EXPECT_EQ(out, " the");
}

TEST(Encode, GiantPiecesTakeLinearTime) {
  const Tokenizer byte_level = load(byte_level_json());
  const Tokenizer sentencepiece = load(sentencepiece_json());
  const ThreadCpuClock clock;  // other processes may use the cores
  for (const char letter : {'l', 'h', ' ', 'q'}) {
    const std::string text((1 << 20) / (kSanitized ? 4 : 1), letter);
    for (const Tokenizer* tokenizer : {&byte_level, &sentencepiece}) {
      const TimePoint start = clock.now();
      const auto ids = ids_of(*tokenizer, text);
      // A quadratic algorithm would need minutes; the limit leaves room for sanitizers.
      EXPECT_LT(clock.now() - start, std::chrono::seconds(20));
      EXPECT_EQ(tokenizer->decode(ids, SkipSpecialTokens::kYes), text);
    }
  }
}

TEST(Encode, RoundTripsRandomText) {
  TestRandom rng(11);
  const Tokenizer byte_level = load(byte_level_json());
  const Tokenizer sentencepiece = load(sentencepiece_json());
  EncodeScratch byte_scratch;
  EncodeScratch piece_scratch;
  for (int round = 0; round < rounds(3000); ++round) {
    std::string text;
    for (std::size_t n = rng() % 400; n > 0; --n) {
      const std::uint32_t code =
          rng() % 4 == 0 ? rng() % 0x110000 : static_cast<unsigned>("hello world 12\n"[rng() % 15]);
      if (code < 0xD800 || code > 0xDFFF) utf8::append(code, text);
    }
    std::vector<TokenId> ids;
    ASSERT_TRUE(byte_level.encode(text, {}, byte_scratch, ids));
    ASSERT_EQ(byte_level.decode(ids, SkipSpecialTokens::kNo), text);
    ASSERT_EQ(ids, ids_of(byte_level, text)) << "the word cache changed the tokens";
    ASSERT_TRUE(sentencepiece.encode(text, {}, piece_scratch, ids));
    ASSERT_EQ(ids, ids_of(sentencepiece, text));
    if (text.find("\u2581") == std::string::npos) {
      ASSERT_EQ(sentencepiece.decode(ids, SkipSpecialTokens::kYes), text);
    }
  }
}

TEST(Load, DirectoryFileAndNothing) {
  const auto directory =
      std::filesystem::path(testing::TempDir()) / ("tokenizer_load_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "tokenizer.json") << dump_json(byte_level_json());
  std::ofstream(directory / "tokenizer_config.json") << R"({"eos_token": "<|end|>"})";
  const auto loaded = Tokenizer::load(directory);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->eos_id(), kEnd);
  const auto file = Tokenizer::load(directory / "tokenizer.json");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->eos_id(), std::nullopt);
  std::filesystem::remove_all(directory);
  const auto missing = Tokenizer::load(directory);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST(Load, ErrorsNameTheFileThatWasRead) {
  const auto directory = std::filesystem::path(testing::TempDir()) /
                         ("tokenizer_load_errors_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  const auto message = [](const std::filesystem::path& path) {
    const auto loaded = Tokenizer::load(path);
    return loaded ? std::string() : loaded.error().message;
  };
  const auto none = Tokenizer::load(directory);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, testing::StartsWith(directory.string()));
  EXPECT_THAT(none.error().message, testing::HasSubstr("there is no tokenizer.json"));
  std::ofstream(directory / "tokenizer.model") << "SentencePiece";
  EXPECT_THAT(message(directory), testing::HasSubstr("save_pretrained"));
  std::ofstream(directory / "model.safetensors") << "no JSON";
  EXPECT_THAT(
      message(directory / "model.safetensors"),
      testing::HasSubstr(directory.filename().string() + "/model.safetensors: not valid JSON"));
  std::ofstream(directory / "tokenizer.json") << "no JSON";
  EXPECT_THAT(message(directory), testing::HasSubstr(directory.filename().string() +
                                                     ": tokenizer.json: not valid JSON"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace sluice
