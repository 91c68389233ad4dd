// Broken and unsupported tokenizer.json files: each gets an error that names the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct Case {
  std::string pointer;  // JSON pointer of the field that is replaced
  json value;
  ErrorCode code;
  std::string message;
};

void expect_refused(const json& definition, const Case& c) {
  json broken = definition;
  broken[json::json_pointer(c.pointer)] = c.value;
  const auto loaded = Tokenizer::from_json(dump_json(broken));
  ASSERT_FALSE(loaded) << c.pointer << " = " << c.value;
  EXPECT_EQ(loaded.error().code, c.code) << c.message;
  EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json: " + c.message));
}

json of_type(const std::string& type) { return {{"type", type}}; }

TEST(TokenizerJson, RefusesUnsupportedPartsByName) {
  const auto code = ErrorCode::kUnsupported;
  for (const Case& c : std::vector<Case>{
           {"/version", "2.0", code, "version '2.0'"},
           {"/normalizer", of_type("Precompiled"), code, "normalizer.type 'Precompiled' is not"},
           {"/normalizer", of_type("BertNormalizer"), code, "normalizer.type 'BertNormalizer'"},
           {"/normalizer",
            {{"type", "Sequence"}, {"normalizers", {of_type("NFC"), of_type("X")}}},
            code,
            "normalizer.normalizers[1].type 'X' is not supported"},
           {"/pre_tokenizer", of_type("UnicodeScripts"), code, "pre_tokenizer.type 'UnicodeScr"},
           {"/pre_tokenizer",
            {{"type", "Split"},
             {"pattern", {{"Regex", "[a&&b]"}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            code,
            "pre_tokenizer.pattern: regular expression: '&& inside a class'"},
           {"/pre_tokenizer",
            {{"type", "Split"},
             {"pattern", {{"String", "x"}}},
             {"behavior", "Sideways"},
             {"invert", false}},
            code,
            "pre_tokenizer.behavior 'Sideways'"},
           {"/decoder", of_type("WordPiece"), code, "decoder.type 'WordPiece' is not supported"},
           {"/decoder",
            {{"type", "Sequence"}, {"decoders", {of_type("Fuse"), of_type("ByteLevel")}}},
            code,
            "decoder.decoders[1].type 'ByteLevel' is not supported after"},
           {"/post_processor", of_type("Strange"), code, "post_processor.type 'Strange'"},
           {"/model/type", "Unigram", code, "model.type 'Unigram' is not supported"},
           {"/model/dropout", 0.1, code, "model.dropout"},
           {"/model/end_of_word_suffix", "</w>", code, "model.end_of_word_suffix '</w>'"},
           {"/model/continuing_subword_prefix", "##", code, "model.continuing_subword_prefix"}}) {
    expect_refused(byte_level_json(), c);
  }
}

TEST(TokenizerJson, BrokenFieldsAreNamed) {
  const auto code = ErrorCode::kInvalidArgument;
  const json no_sequence = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}}},
                            {"special_tokens", json::object()}};
  json huge_special = no_sequence;
  huge_special["single"].push_back({{"Sequence", {{"id", "A"}}}});
  huge_special["special_tokens"]["<s>"]["ids"] = {9999};
  for (const Case& c : std::vector<Case>{
           {"/model", nullptr, code, "model must be an object"},
           {"/model/vocab", json::array(), code, "model.vocab must be an object"},
           {"/model/vocab/hello", "5", code, "model.vocab['hello'] must be a token id"},
           {"/model/vocab/hello", -1, code, "model.vocab['hello'] must be a token id"},
           {"/model/vocab/hello", 1.5, code, "model.vocab['hello'] must be a token id"},
           {"/model/vocab/hello", 4'000'000'000u, code, "model.vocab['hello'] is 4000000000;"},
           {"/model/vocab/hello", 3, code, "model.vocab: token"},
           {"/model/merges", "h e", code, "model.merges must be an array"},
           {"/model/merges/1", "he", code, "model.merges[1] must be"},
           {"/model/merges/1", "h e l", code, "model.merges[1] must be"},
           {"/model/merges/1", {"h"}, code, "model.merges[1] must be"},
           {"/model/merges/2", "h nope", code, "model.merges[2]: token 'nope' is not in model.v"},
           {"/model/merges/2", {"h", "o"}, code, "model.merges[2]: token 'ho' is not in model.v"},
           {"/model/unk_token", "<unk>", code, "model.unk_token '<unk>' is not in model.vocab"},
           {"/model/fuse_unk", 1, code, "model.fuse_unk must be true or false"},
           {"/added_tokens", 5, code, "added_tokens must be an array"},
           {"/added_tokens/0", "x", code, "added_tokens[0].id must be"},
           {"/added_tokens/0/id", 1 << 30, code, "added_tokens[0].id 1073741824 is not below"},
           {"/added_tokens/0/id", 268, code, "added_tokens: '<|bos|>' and '<|end|>' both have id"},
           {"/added_tokens/0/id", 65, code, "added_tokens: '<|bos|>' has id 65, which is another"},
           {"/added_tokens/1/id", 16777216, code, "added_tokens[1].id 16777216 is not below"},
           {"/added_tokens/0/content", "", code, "added_tokens[0].content must not be empty"},
           {"/added_tokens/0/content", "hello", code, "added_tokens: 'hello' has id 267, but"},
           {"/added_tokens/0/content", "<|end|>", code, "added_tokens: '<|end|>' occurs twice"},
           {"/added_tokens/0/lstrip", "no", code, "added_tokens[0].lstrip must be true or false"},
           {"/normalizer", "NFC", code, "normalizer.type must be a string"},
           {"/normalizer",
            {{"type", "Strip"}, {"strip_left", true}},
            code,
            "normalizer.strip_right must be true or false"},
           {"/pre_tokenizer", of_type("ByteLevel"), code, "pre_tokenizer.add_prefix_space must"},
           {"/pre_tokenizer",
            {{"type", "Split"}, {"pattern", {{"String", ""}}}},
            code,
            "pre_tokenizer.pattern must not be empty"},
           {"/pre_tokenizer",
            {{"type", "Metaspace"}, {"replacement", "ab"}},
            code,
            "pre_tokenizer.replacement must be one character"},
           {"/pre_tokenizer",
            {{"type", "Sequence"}},
            code,
            "pre_tokenizer.pretokenizers must be an array"},
           {"/post_processor", no_sequence, code,
            "post_processor.special_tokens['<s>'] is missing"},
           {"/post_processor", huge_special, code, "post_processor: token id 9999 is no token"}}) {
    expect_refused(byte_level_json(), c);
  }
}

TEST(TokenizerJson, HolesAreNoTokens) {
  json definition = byte_level_json();
  definition["model"]["vocab"].erase("hello");
  definition["model"]["merges"] = json::array();
  const auto holey = Tokenizer::from_json(dump_json(definition));
  ASSERT_TRUE(holey) << holey.error().message;
  EXPECT_EQ(holey->vocab_size(), kEnd + 1);
  EXPECT_EQ(holey->token_text(kHello), "");
  EXPECT_EQ(holey->token_bytes(kHello), "");
  EXPECT_EQ(holey->id_of("hello"), std::nullopt);
  const auto ids = holey->encode("hello<|end|>");
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->size(), 6U);
  EXPECT_EQ(ids->back(), kEnd);
  const std::vector<TokenId> with_hole{'h', kHello, kSpaceWorld};
  const std::vector<TokenId> without{'h', kSpaceWorld};
  EXPECT_EQ(holey->decode(with_hole, SkipSpecialTokens::kNo),
            holey->decode(without, SkipSpecialTokens::kNo));
}

// The answers of the package `tokenizers` 0.23.3 for the same file.
TEST(TokenizerJson, HoleyVocabularyAsTheReference) {
  const auto make = [](const json& vocab, const json& added) {
    return Tokenizer::from_json(
        dump_json(json{{"version", "1.0"},
                       {"added_tokens", added},
                       {"decoder", {{"type", "Fuse"}}},
                       {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}}}}));
  };
  const std::vector<TokenId> all{0, 1, 2, 3, 7, 100};
  const auto bare = make({{"a", 0}, {"b", 2}, {"ab", 7}}, json::array());
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(bare->vocab_size(), 8);
  EXPECT_EQ(*bare->encode("abba<x>a<y>"), (std::vector<TokenId>{7, 2, 0, 0}));
  EXPECT_EQ(bare->decode(all, SkipSpecialTokens::kNo), "abab");

  const auto filled =
      make({{"a", 0}, {"b", 2}, {"ab", 7}}, {added_token(3, "<x>"), added_token(4, "<y>")});
  ASSERT_TRUE(filled) << filled.error().message;
  EXPECT_EQ(*filled->encode("abba<x>a<y>"), (std::vector<TokenId>{7, 2, 0, 3, 0, 4}));
  EXPECT_EQ(filled->decode(all, SkipSpecialTokens::kNo), "ab<x>ab");
  EXPECT_EQ(filled->decode(all, SkipSpecialTokens::kYes), "abab");

  // Here the reference would say 3 and 4, which are not the file's ids.
  const auto behind =
      make({{"a", 0}, {"b", 2}, {"ab", 7}}, {added_token(8, "<x>"), added_token(11, "<y>")});
  ASSERT_TRUE(behind) << behind.error().message;
  EXPECT_EQ(behind->vocab_size(), 12);
  EXPECT_EQ(*behind->encode("<x>a<y>"), (std::vector<TokenId>{8, 0, 11}));
}

TEST(TokenizerJson, SpecialsAreTokensNotHoles) {
  json definition = byte_level_json();
  definition["model"]["vocab"].erase("hello");
  definition["model"]["merges"] = json::array();
  definition["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"<|bos|>", kHello}}, {"sep", {"<|end|>", kEnd}}};
  const auto loaded = Tokenizer::from_json(dump_json(definition));
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("post_processor: token id 259 is no token"));
}

TEST(TokenizerJson, HugeIdsAreNamed) {
  json definition = byte_level_json();
  definition["model"]["vocab"]["hello"] = 16777216;
  auto loaded = Tokenizer::from_json(dump_json(definition));
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message,
              HasSubstr("model.vocab['hello'] is 16777216; ids must be below 16777216"));
  definition["model"]["vocab"]["hello"] = 16777215;
  loaded = Tokenizer::from_json(dump_json(definition));
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->vocab_size(), 16777216);
  EXPECT_EQ(loaded->token_text(16777215), "hello");
}

TEST(TokenizerJson, DuplicatesAreNamed) {
  std::string text = dump_json(byte_level_json());
  text.replace(text.find("\"hello\":259"), 11, "\"hello\":259,\"hello\":259");
  const auto loaded = Tokenizer::from_json(text);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("token 'hello' has id 259, which token 'hello'"));
}

TEST(TokenizerJson, TruncatedTextsAreRefused) {
  const std::string whole = dump_json(sentencepiece_json());
  for (std::size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 97) {
    const auto loaded = Tokenizer::from_json(std::string_view(whole).substr(0, size));
    ASSERT_FALSE(loaded) << size;
    EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer.json: not valid JSON"));
  }
  EXPECT_TRUE(Tokenizer::from_json(whole));
  EXPECT_FALSE(Tokenizer::from_json("[]"));
  EXPECT_FALSE(Tokenizer::from_json(std::string(100000, '[')));
  EXPECT_FALSE(Tokenizer::from_json("{\"model\": \"\xFF\"}"));
}

TEST(TokenizerJson, BrokenConfigIsRefused) {
  const std::string definition = dump_json(byte_level_json());
  for (const std::string config : {"{", "[]", R"({"bos_token": 5})", R"({"add_bos_token": 1})"}) {
    const auto loaded = Tokenizer::from_json(definition, config);
    ASSERT_FALSE(loaded) << config;
    EXPECT_THAT(loaded.error().message, HasSubstr("tokenizer_config.json: "));
  }
  // Tokens that do not exist are not there; nothing else in the file matters.
  const auto loaded = Tokenizer::from_json(definition, R"({"eos_token": "<none>", "x": [1]})");
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->eos_id(), std::nullopt);
}

TEST(TokenizerJson, PostProcessorsCompose) {
  json definition = byte_level_json();
  const json start = {{"SpecialToken", {{"id", "B"}, {"type_id", 0}}}};
  const json end = {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}};
  const json sequence = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  definition["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}, {"trim_offsets", false}},
        {{"type", "TemplateProcessing"},
         {"single", {start, sequence, end}},
         {"special_tokens", {{"B", {{"ids", {kBos, kBos}}}}, {"E", {{"ids", {kEnd}}}}}}}}}};
  const auto tokenizer = Tokenizer::from_json(dump_json(definition));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT(*tokenizer->encode("hello"), testing::ElementsAre(kBos, kBos, kHello, kEnd));
  definition["post_processor"] = {
      {"type", "RobertaProcessing"}, {"sep", {"<|end|>", kEnd}}, {"cls", {"<|bos|>", kBos}}};
  const auto roberta = Tokenizer::from_json(dump_json(definition));
  ASSERT_TRUE(roberta) << roberta.error().message;
  EXPECT_THAT(*roberta->encode("hello"), testing::ElementsAre(kBos, kHello, kEnd));
}

TEST(TokenizerJson, ReadsWhatPythonWrites) {
  // transformers writes this length when none is set.
  const std::string config =
      "\xEF\xBB\xBF{\"model_max_length\": 1000000000000000019884624838656, \"odd\": [NaN, "
      "-Infinity, 1e999], \"eos_token\": \"<|end|>\"}";
  const std::string definition = dump_json(byte_level_json());
  const auto plain = Tokenizer::from_json(definition, config);
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->eos_id(), kEnd);
  const std::string marked =
      "\xEF\xBB\xBF{\"odd\": " + std::string(400, '7') + ", " + definition.substr(1);
  const auto odd = Tokenizer::from_json(marked);
  ASSERT_TRUE(odd) << odd.error().message;
  EXPECT_EQ(*odd->encode("hello"), std::vector<TokenId>{kHello});
}

TEST(TokenizerJson, NestingIsBounded) {
  const auto nested = [](int levels) {
    return "{\"odd\": " + std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']') + ", ";
  };
  const std::string rest = dump_json(byte_level_json()).substr(1);
  EXPECT_TRUE(Tokenizer::from_json(nested(63) + rest));
  for (const int levels : {64, 100'000}) {
    const auto loaded = Tokenizer::from_json(nested(levels) + rest);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().message, "tokenizer.json: nested deeper than 64 levels");
  }
}

}  // namespace
}  // namespace sluice
