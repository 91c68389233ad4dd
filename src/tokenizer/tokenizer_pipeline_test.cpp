// The steps around the model: normalizers, pre-tokenizers, added tokens and decoders. Expected
// results were taken from the `tokenizers` package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/utf8.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/test_random.h"
#include "tokenizer/text_normalizer.h"
#include "tokenizer/token_decoder.h"

namespace sluice {
namespace {

using Pieces = std::vector<std::string>;

std::string normalize(std::vector<NormalizerStep> steps, std::string text) {
  NormalizerScratch scratch;
  EXPECT_TRUE(TextNormalizer(std::move(steps)).run(text, scratch));
  return text;
}

template <class... Steps>
std::vector<NormalizerStep> normalizers(Steps... steps) {
  std::vector<NormalizerStep> all;
  (all.emplace_back(std::move(steps)), ...);
  return all;
}

// The input's first character is the first of `text`, or `first_bytes` of it.
template <class... Steps>
Pieces split_from(std::size_t first_bytes, std::string_view text, Steps... steps) {
  std::vector<PreTokenizerStep> all;
  (all.emplace_back(std::move(steps)), ...);
  PreTokenizerScratch scratch;
  scratch.first_bytes = first_bytes;
  const auto cut = PreTokenizer(std::move(all)).run(text, scratch);
  EXPECT_TRUE(cut);
  Pieces pieces;
  for (const TextRange& r : scratch.pieces)
    pieces.emplace_back(cut->substr(r.begin, r.end - r.begin));
  return pieces;
}

template <class... Steps>
Pieces split(std::string_view text, Steps... steps) {
  return split_from(text.empty() ? 0 : utf8::decode(text, 0).bytes, text, std::move(steps)...);
}

TEST(Normalizer, Forms) {
  const std::string angstrom = "A\u030A \u212B \uFB01 \u1100\u1161\u11A8 x\u0323\u0307";
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfc), angstrom),
            "\u00C5 \u00C5 \uFB01 \uAC01 \u1E8B\u0323");
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfd), angstrom),
            "A\u030A A\u030A \uFB01 \u1100\u1161\u11A8 x\u0323\u0307");
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfkc), angstrom),
            "\u00C5 \u00C5 fi \uAC01 \u1E8B\u0323");
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfkd), "\u00BD"), "1\u20442");
  // Marks are put in order, also when a plain letter stands before them.
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfc), "a\u0307\u0323b"), "\u1EA1\u0307b");
  // U+11938 is newer than the reference's normalizer: its halves stay apart.
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfc), "\U00011935\U00011930e\u0301"),
            "\U00011935\U00011930\u00E9");
}

TEST(Normalizer, StretchesGiveWhatTheWholeTextGives) {
  // Between plain letters the text is normalized in stretches; doing it twice changes nothing.
  TestRandom rng(4);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (std::size_t n = rng() % 12; n > 0; --n) {
      const std::uint32_t kinds[] = {'a' + rng() % 26,       0x300 + rng() % 0x70,
                                     0xC0 + rng() % 0x100,   0x1100 + rng() % 0x100,
                                     0xAC00 + rng() % 11172, 0x1E00 + rng() % 0x200};
      utf8::append(kinds[rng() % 6], text);
    }
    const std::string nfc = normalize(normalizers(NormalForm::kNfc), text);
    ASSERT_EQ(normalize(normalizers(NormalForm::kNfc), nfc), nfc);
    ASSERT_EQ(normalize(normalizers(NormalForm::kNfd, NormalForm::kNfc), text), nfc);
    ASSERT_EQ(normalize(normalizers(NormalForm::kNfd), nfc),
              normalize(normalizers(NormalForm::kNfd), text));
  }
}

TEST(Normalizer, OtherSteps) {
  EXPECT_EQ(normalize(normalizers(StripStep{true, false}), " \u00A0\tx "), "x ");
  EXPECT_EQ(normalize(normalizers(StripStep{true, true}), " \u3000 "), "");
  EXPECT_EQ(normalize(normalizers(LowercaseStep{}), "A\u0130\u00DF\u03A3\u1E9E"),
            "ai\u0307\u00DF\u03C3\u00DF");
  EXPECT_EQ(normalize(normalizers(NormalForm::kNfd, StripAccentsStep{}), "\u00E9\u00F1"), "en");
  EXPECT_EQ(normalize(normalizers(PrependStep{"_"}), ""), "");
  EXPECT_EQ(normalize(normalizers(PrependStep{"_"}), "x"), "_x");
  EXPECT_EQ(normalize(normalizers(ReplaceStep{std::string("aa"), "b"}), "aaaxaa"), "baxb");
  auto regex = Regex::compile("[0-9]+");
  ASSERT_TRUE(regex);
  EXPECT_EQ(normalize(normalizers(ReplaceStep{*std::move(regex), "#"}), "a12b3"), "a#b#");
  EXPECT_EQ(normalize(normalizers(ByteLevelStep{}), " \u00E9"), "\u0120\u00C3\u00A9");
}

ReplaceStep replace_regex(std::string_view pattern, std::string content) {
  return {*Regex::compile(pattern), std::move(content)};
}

// The expectations follow from what the `tokenizers` package 0.23.3 puts before which piece.
TEST(TextNormalizer, FollowsTheFirstCharacter) {
  const auto first_bytes = [](std::string text, auto... steps) {
    NormalizerScratch scratch;
    scratch.first_bytes = utf8::decode(text, 0).bytes;
    EXPECT_TRUE(TextNormalizer(normalizers(std::move(steps)...)).run(text, scratch));
    return scratch.first_bytes;
  };
  EXPECT_EQ(first_bytes("abc", LowercaseStep{}), 1U);
  EXPECT_EQ(first_bytes("abc", PrependStep{"\u2581"}), 4U);
  EXPECT_EQ(first_bytes("abc", replace_regex("a", "xyz")), 3U);
  EXPECT_EQ(first_bytes("abc", replace_regex("ab", "x")), 0U);  // stands for the "b"
  EXPECT_EQ(first_bytes("abc", replace_regex("[ab]", "xx")), 2U);
  EXPECT_EQ(first_bytes("abc", replace_regex("^", "x")), 2U);
  EXPECT_EQ(first_bytes("ab", PrependStep{"x"}, replace_regex("xa", "yz")), 2U);
  EXPECT_EQ(first_bytes("ab", PrependStep{"x"}, replace_regex("ab", "yz")), 1U);
  EXPECT_EQ(first_bytes("  a", replace_regex(" +", " ")), 0U);
  EXPECT_EQ(first_bytes(" a", ReplaceStep{std::string(" "), ""}), 0U);
  EXPECT_EQ(first_bytes("a ", ReplaceStep{std::string(" "), ""}), 1U);
  EXPECT_EQ(first_bytes(" a", ReplaceStep{std::string(" "), "\u2581"}), 3U);
  EXPECT_EQ(first_bytes(" a", StripStep{true, false}), 0U);
  EXPECT_EQ(first_bytes(" a", StripStep{false, true}), 1U);
  EXPECT_EQ(first_bytes(" ", StripStep{false, true}, LowercaseStep{}), 0U);
  EXPECT_EQ(first_bytes("\u00E9a", NormalForm::kNfd), 3U);
  EXPECT_EQ(first_bytes("\u00E9a", NormalForm::kNfd, StripAccentsStep{}), 1U);
  EXPECT_EQ(first_bytes("\u0301a", StripAccentsStep{}), 0U);
  EXPECT_EQ(first_bytes("\u0130a", LowercaseStep{}), 3U);
  EXPECT_EQ(first_bytes("\u00E9a", ByteLevelStep{}), 4U);
}

TEST(PreTokenizer, BehaviorsOfSplit) {
  using enum SplitBehavior;
  const auto dash = [](SplitBehavior behavior, MatchSense sense = MatchSense::kMatches) {
    return SplitStep{std::string("-"), behavior, sense};
  };
  const std::string text = "The-final--countdown";
  EXPECT_EQ(split(text, dash(kRemoved)), (Pieces{"The", "final", "countdown"}));
  EXPECT_EQ(split(text, dash(kIsolated)), (Pieces{"The", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(text, dash(kMergedWithPrevious)), (Pieces{"The-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(text, dash(kMergedWithNext)), (Pieces{"The", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(text, dash(kContiguous)), (Pieces{"The", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split(text, dash(kRemoved, MatchSense::kInverted)), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(split("--a", dash(kMergedWithPrevious)), (Pieces{"-", "-", "a"}));
  EXPECT_EQ(split("a--", dash(kMergedWithNext)), (Pieces{"a", "-", "-"}));
  EXPECT_EQ(split("", dash(kIsolated)), Pieces{});
}

TEST(PreTokenizer, Classes) {
  using enum SplitBehavior;
  EXPECT_EQ(split("a12b\u0663\u00BDc", SplitStep{unicode::kNumeric, kIsolated}),
            (Pieces{"a", "1", "2", "b", "\u0663", "\u00BD", "c"}));
  EXPECT_EQ(split("12ab3", SplitStep{unicode::kNumeric, kContiguous}), (Pieces{"12", "ab", "3"}));
  EXPECT_EQ(split("Hey, you!?", SplitStep{unicode::kPunctuation, kContiguous}),
            (Pieces{"Hey", ",", " you", "!?"}));
  EXPECT_EQ(split("Hey man, it's\u3000ok", WordsStep{}),
            (Pieces{"Hey", "man", ",", "it", "'", "s", "ok"}));
  EXPECT_EQ(split(" a  b ", SplitStep{unicode::kSpace, kRemoved}), (Pieces{"a", "b"}));
  EXPECT_EQ(split("abc\u00E9f", FixedLengthStep{2}), (Pieces{"ab", "c\u00E9", "f"}));
}

TEST(PreTokenizer, Metaspace) {
  const std::string mark = "\u2581";
  EXPECT_EQ(split("Hey  you", MetaspaceStep{mark, PrependScheme::kAlways},
                  SplitStep{mark, SplitBehavior::kMergedWithNext}),
            (Pieces{mark + "Hey", mark, mark + "you"}));
  EXPECT_EQ(split(" Hey", MetaspaceStep{mark, PrependScheme::kFirst}), (Pieces{mark + "Hey"}));
  EXPECT_EQ(split("Hey", MetaspaceStep{mark, PrependScheme::kNever}), (Pieces{"Hey"}));
}

// The expectations are those of the `tokenizers` package 0.23.3.
TEST(PreTokenizer, MetaspaceMarksPiecesOfTheFirstCharacter) {
  const std::string mark = "\u2581";
  const MetaspaceStep first{mark, PrependScheme::kFirst};
  const auto words = [] { return SplitStep{unicode::kSpace, SplitBehavior::kRemoved}; };
  const auto isolate = [](std::string text) {
    return SplitStep{std::move(text), SplitBehavior::kIsolated};
  };
  EXPECT_EQ(split_from(0, "x", first), (Pieces{"x"}));
  EXPECT_EQ(split("a b", words(), first), (Pieces{mark + "a", "b"}));
  EXPECT_EQ(split(" a b", words(), first), (Pieces{"a", "b"}));
  // The bytes before "b" were put there, or made of one character, by the normalizer.
  EXPECT_EQ(split_from(2, "xab", isolate("x"), first), (Pieces{mark + "x", mark + "ab"}));
  EXPECT_EQ(split_from(2, "xxb", isolate("x"), first), (Pieces{mark + "x", mark + "x", "b"}));
  EXPECT_EQ(split("abc", isolate("a"), first, isolate(mark), first),
            (Pieces{mark, mark + "a", "bc"}));
  EXPECT_EQ(split("a", ByteLettersStep{}, PrefixSpaceStep{}, isolate(" "), first),
            (Pieces{mark, mark + "a"}));
}

TEST(PreTokenizer, FalconSequence) {
  EXPECT_EQ(split("a $12345 b", SplitStep{unicode::kPunctuation, SplitBehavior::kContiguous},
                  SplitStep{KnownPattern::kGpt2}, ByteLettersStep{},
                  SplitStep{unicode::kNumeric, SplitBehavior::kContiguous},
                  SplitStep{KnownPattern::kThreeDigits}),
            (Pieces{"a", "\u0120", "$", "123", "45", "\u0120b"}));
}

// A matcher with its tables.
struct OwnedMatcher {
  AddedTokenTables tables;
  AddedTokenMatcher matcher;

  explicit OwnedMatcher(const std::vector<AddedToken>& tokens) {
    std::vector<std::string> texts;
    for (const AddedToken& token : tokens) texts.push_back(token.content);
    tables = make_added_token_tables(tokens, texts).value();
    const auto added = AddedTokens::open(tables.records, tables.texts, 100);
    EXPECT_TRUE(added) << added.error().message;
    const auto opened = AddedTokenMatcher::open(tables.raw_trie, *added, SearchedText::kRaw);
    EXPECT_TRUE(opened) << opened.error().message;
    matcher = *opened;
  }
};

Pieces stretches(const AddedTokenMatcher& matcher, std::string_view text) {
  std::vector<AddedTokenMatcher::Stretch> found;
  matcher.split(text, SpecialTokenText::kIsToken, found);
  Pieces pieces;
  for (const auto& s : found) {
    pieces.push_back((s.id >= 0 ? std::to_string(s.id) + ":" : "") +
                     std::string(text.substr(s.begin, s.end - s.begin)));
  }
  return pieces;
}

TEST(AddedTokenMatcher, LongestAtTheLeftmostPlace) {
  const OwnedMatcher owned({{.id = 0, .content = "ab"},
                            {.id = 1, .content = "abcd"},
                            {.id = 2, .content = "bc"},
                            {.id = 3, .content = "\u00E9"}});
  const AddedTokenMatcher& matcher = owned.matcher;
  EXPECT_EQ(stretches(matcher, "xabcdabcab\u00E9"),
            (Pieces{"x", "1:abcd", "0:ab", "c", "0:ab", "3:\u00E9"}));
  EXPECT_EQ(stretches(matcher, ""), Pieces{});
  EXPECT_EQ(stretches(AddedTokenMatcher(), "ab"), (Pieces{"ab"}));
}

TEST(AddedTokenMatcher, SpacesGoToTheTokenThatStripsThem) {
  const OwnedMatcher owned(
      {{.id = 0, .content = "<l>", .lstrip = true}, {.id = 1, .content = "<r>", .rstrip = true}});
  EXPECT_EQ(stretches(owned.matcher, "a \u00A0<l> <r> \n<l> b"),
            (Pieces{"a", "0: \u00A0<l>", " ", "1:<r> \n", "0:<l>", " b"}));
}

// The expectations are those of the `tokenizers` package 0.23.3, which fails where a token of
// spaces with lstrip alone begins in spaces that another one absorbed.
TEST(AddedTokenMatcher, TokensOfSpacesAfterATokenThatAbsorbedSpaces) {
  const auto cut = [](AddedToken token, std::string_view text) {
    token.id = 1;
    return stretches(OwnedMatcher({{.id = 0, .content = "<r>", .rstrip = true}, token}).matcher,
                     text);
  };
  const AddedToken spaces{.content = "  "};
  AddedToken both = spaces;
  both.lstrip = both.rstrip = true;
  EXPECT_EQ(cut(both, "a     b"), (Pieces{"a", "1:     ", "b"}));
  EXPECT_EQ(cut(both, "<r>    b"), (Pieces{"0:<r>    ", "b"}));
  AddedToken left = spaces;
  left.lstrip = true;
  EXPECT_EQ(cut(left, "a     b"), (Pieces{"a", "1:  ", "1:  ", " b"}));
  EXPECT_EQ(cut(left, "<r>    b"), (Pieces{"0:<r>    ", "b"}));
  AddedToken right = spaces;
  right.rstrip = true;
  EXPECT_EQ(cut(right, "a     b"), (Pieces{"a", "1:     ", "1:   ", "b"}));
  EXPECT_EQ(cut(spaces, "<r>    b"), (Pieces{"0:<r>    ", "1:  ", "1:  ", "b"}));
  EXPECT_EQ(cut({.content = " b", .lstrip = true}, "<r>  bc"), (Pieces{"0:<r>  ", "1:b", "c"}));
  EXPECT_EQ(cut({.content = " b"}, "<r>  bc"), (Pieces{"0:<r>  ", "1: b", "c"}));
}

TEST(AddedTokenMatcher, RefusesWhatIsNoTrieOfTheTokens) {
  OwnedMatcher owned({{.id = 0, .content = "ab"}, {.id = 1, .content = "ac"}});
  const auto added = AddedTokens::open(owned.tables.records, owned.tables.texts, 100);
  auto& trie = owned.tables.raw_trie;
  const auto opens = [&](SearchedText searched = SearchedText::kRaw) {
    return AddedTokenMatcher::open(trie, *added, searched).has_value();
  };
  ASSERT_TRUE(opens());
  EXPECT_FALSE(opens(SearchedText::kNormalized));
  const std::size_t nodes = trie.size() - 3 * sizeof(TrieNode);
  const auto with_change = [&](std::size_t node, auto change) {
    const std::size_t at = nodes + node * sizeof(TrieNode);
    TrieNode changed;
    std::memcpy(&changed, trie.data() + at, sizeof changed);
    const TrieNode before = changed;
    change(changed);
    std::memcpy(trie.data() + at, &changed, sizeof changed);
    const bool result = opens();
    std::memcpy(trie.data() + at, &before, sizeof before);
    return result;
  };
  EXPECT_TRUE(with_change(0, [](TrieNode&) {}));
  EXPECT_FALSE(with_change(0, [](TrieNode& node) { node.first_child = 3; }));
  EXPECT_FALSE(with_change(0, [](TrieNode& node) { node.first_child = 0; }));
  EXPECT_FALSE(with_change(0, [](TrieNode& node) { node.first_child = -1; }));
  EXPECT_FALSE(with_change(0, [](TrieNode& node) { node.byte = 'x'; }));
  EXPECT_FALSE(with_change(0, [](TrieNode& node) { node.token = 1; }));
  EXPECT_FALSE(with_change(1, [](TrieNode& node) { node.next_sibling = 2; }));
  EXPECT_FALSE(with_change(1, [](TrieNode& node) { node.first_child = 2; }));
  EXPECT_FALSE(with_change(1, [](TrieNode& node) { node.token = 7; }));
  EXPECT_FALSE(with_change(2, [](TrieNode& node) { node.byte = 'b'; }));
  EXPECT_FALSE(with_change(2, [](TrieNode& node) { node.byte = 256 + 'c'; }));
  trie.pop_back();
  EXPECT_FALSE(opens());
  trie.clear();
  EXPECT_FALSE(opens());
}

std::string decode(const TokenDecoder& decoder, const Pieces& tokens) {
  TokenDecoder::State state;
  std::string out;
  for (const auto& token : tokens) decoder.push(token, state, out);
  decoder.finish(state, out);
  return out;
}

TEST(TokenDecoder, Joins) {
  EXPECT_EQ(decode(TokenDecoder(), {"a", "b"}), "a b");
  EXPECT_EQ(decode(TokenDecoder({}, TokenJoin::kPlain, {}), {"a", "b"}), "ab");
  // A token with a character that stands for no byte is text.
  EXPECT_EQ(decode(TokenDecoder({}, TokenJoin::kByteLevel, {}), {"\u0120a", "\u4E2D b"}),
            " a\u4E2D b");
  const TokenDecoder fallback({}, TokenJoin::kByteFallback, {});
  EXPECT_EQ(decode(fallback, {"<0xE2>", "<0x82>", "<0xAC>", "a", "<0x61>"}), "\u20ACaa");
  EXPECT_EQ(decode(fallback, {"<0xE2>", "<0x82>", "a"}), "\uFFFD\uFFFDa");
  EXPECT_EQ(decode(fallback, {"<0xG1>", "<0x1>"}), "<0xG1><0x1>");
}

TEST(TokenDecoder, Steps) {
  const TokenDecoder metaspace({MetaspacePieceStep{"\u2581", true}}, TokenJoin::kPlain, {});
  EXPECT_EQ(decode(metaspace, {"\u2581Hey", "\u2581you"}), "Hey you");
  const TokenDecoder strip({StripPieceStep{"H", 1, 0}}, TokenJoin::kPlain, {});
  EXPECT_EQ(decode(strip, {"Hey", "HH"}), "eyH");
  const TokenDecoder both({StripPieceStep{"x", 1, 2}}, TokenJoin::kPlain, {});
  EXPECT_EQ(decode(both, {"xaxxx", "x", ""}), "ax");
  const TokenDecoder text({}, TokenJoin::kPlain, {StripTextStep{" ", 2}});
  EXPECT_EQ(decode(text, {" ", "  a", " b"}), " a b");
  EXPECT_EQ(decode(text, {"a", "  b"}), "a  b");
}

TEST(TokenDecoder, ReplaceInJoinedTextFindsWhatSpansTokens) {
  const TokenDecoder decoder({}, TokenJoin::kPlain, {ReplacePieceStep{"aa", "b"}});
  EXPECT_EQ(decode(decoder, {"a", "a", "a", "xa", "a"}), "baxb");
  TestRandom rng(6);
  for (int round = 0; round < 5000; ++round) {
    Pieces tokens;
    std::string whole;
    for (std::size_t n = rng() % 20; n > 0; --n) {
      const char letter = "aab"[rng() % 3];
      tokens.emplace_back(rng() % 3, letter);
      whole += tokens.back();
    }
    ASSERT_EQ(decode(decoder, tokens), decode(decoder, {whole})) << whole;
  }
}

}  // namespace
}  // namespace sluice
