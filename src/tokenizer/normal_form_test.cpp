// The normal forms against utf8proc's own, and their cost.
#include "tokenizer/normal_form.h"
#include "tests/support/sanitized.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/utf8.h"
#include "tokenizer/test_random.h"
#include "tokenizer/unicode_classes.h"

namespace sluice {
namespace {

constexpr NormalForm kForms[] = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc,
                                 NormalForm::kNfkd};

std::string normalized(NormalForm form, std::string text) {
  NormalFormScratch scratch;
  StopMeter meter;
  EXPECT_TRUE(normalize(form, text, scratch, meter));
  return text;
}

std::string by_utf8proc(NormalForm form, const std::string& text) {
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const int options = UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatible ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* raw = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &raw,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  EXPECT_GE(size, 0);
  return {reinterpret_cast<const char*>(raw), static_cast<std::size_t>(size)};
}

// Any code point that is none of the reference's barriers (utf8proc knows no barriers).
std::uint32_t random_code_point(TestRandom& rng) {
  const std::uint32_t kinds[] = {
      static_cast<std::uint32_t>('a' + rng() % 26),
      static_cast<std::uint32_t>(0x300 + rng() % 0x70),     // marks
      static_cast<std::uint32_t>(0x5B0 + rng() % 0x20),     // marks of other classes
      static_cast<std::uint32_t>(0xC0 + rng() % 0x200),     // Latin
      static_cast<std::uint32_t>(0x370 + rng() % 0x90),     // Greek
      static_cast<std::uint32_t>(0x900 + rng() % 0x400),    // Indic: excluded compositions
      static_cast<std::uint32_t>(0x1100 + rng() % 0x100),   // Hangul letters
      static_cast<std::uint32_t>(0xAC00 + rng() % 11172),   // Hangul syllables
      static_cast<std::uint32_t>(0x1E00 + rng() % 0x200),   // Latin and Greek, composed
      static_cast<std::uint32_t>(0x2000 + rng() % 0x400),   // compatibility characters
      static_cast<std::uint32_t>(0xF900 + rng() % 0x700),   // further ones
      static_cast<std::uint32_t>(0x1D100 + rng() % 0x700),  // music, mathematics
      static_cast<std::uint32_t>(rng() % 0x110000),
  };
  const std::uint32_t c = kinds[rng() % std::size(kinds)];
  const bool usable =
      (c < 0xD800 || c >= 0xE000) && c != 0 && !unicode::classes().is(c, unicode::kBarrier);
  return usable ? c : 'x';
}

TEST(NormalForms, EqualUtf8procOnRandomText) {
  TestRandom rng(21);
  for (int round = 0; round < 30'000; ++round) {
    std::string text;
    for (std::size_t n = rng() % 14; n > 0; --n) utf8::append(random_code_point(rng), text);
    for (const NormalForm form : kForms) {
      ASSERT_EQ(normalized(form, text), by_utf8proc(form, text)) << "round " << round;
    }
  }
}

TEST(NormalForms, EqualUtf8procOnRunsOfMarks) {
  TestRandom rng(22);
  for (const std::size_t length : {2, 100, 1000}) {
    std::string text = "e";
    for (std::size_t i = 0; i < length; ++i) {
      utf8::append(
          static_cast<std::uint32_t>(rng() % 8 == 0 ? 0x5B0 + rng() % 13 : 0x300 + rng() % 0x70),
          text);
    }
    for (const NormalForm form : kForms) {
      EXPECT_EQ(normalized(form, text), by_utf8proc(form, text));
    }
  }
}

TEST(NormalForms, RunsOfMarksTakeLinearTime) {
  // U+0301 has class 230, U+0316 class 220: each pair is out of order. Quadratic work on these 8 MB
  // would take hours, far beyond the time limit of a test.
  std::string text = "a";
  while (text.size() < (std::size_t{8} << 20) / (kSanitized ? 8 : 1)) text += "\u0301\u0316";
  for (const NormalForm form : kForms) {
    const std::string result = normalized(form, text);
    const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
    EXPECT_TRUE(result.starts_with(composed ? "\u00E1\u0316" : "a\u0316"));
    EXPECT_TRUE(result.ends_with("\u0301\u0301"));
  }
}

TEST(NormalForms, StopCheckEndsTheWork) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "\u00e9\u0301";
  const StopCheck stop = []() -> Status { return Error{ErrorCode::kCancelled, "left"}; };
  StopMeter meter(&stop);
  NormalFormScratch scratch;
  const Status status = normalize(NormalForm::kNfc, text, scratch, meter);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "left");
}

}  // namespace
}  // namespace sluice
