#include "server/json_writer.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {
namespace {

std::string string_json(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

std::string written(float value) {
  std::string out;
  append_json_float(value, out);
  return out;
}

TEST(AppendJsonString, EscapesWhatJsonMustHaveEscapedAndNothingElse) {
  EXPECT_EQ(string_json(""), R"("")");
  EXPECT_EQ(string_json("plain / text"), R"("plain / text")");
  EXPECT_EQ(string_json("\"\\\b\f\n\r\t"), R"("\"\\\b\f\n\r\t")");
  EXPECT_EQ(string_json(std::string_view("\0\x01\x1f\x7f", 4)), "\"\\u0000\\u0001\\u001f\x7f\"");
  EXPECT_EQ(string_json("é 漢 😀"), "\"é 漢 😀\"");
}

TEST(AppendJsonString, ReplacesEachMaximalInvalidPart) {
  EXPECT_EQ(string_json("a\xE6\xBC"), "\"a\xEF\xBF\xBD\"");              // half a character
  EXPECT_EQ(string_json("\x80\xFFz"), "\"\xEF\xBF\xBD\xEF\xBF\xBDz\"");  // never a start
  EXPECT_EQ(string_json("\xED\xA0\x80"),
            "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // a surrogate
  EXPECT_EQ(string_json("\xE6\"\n"), "\"\xEF\xBF\xBD\\\"\\n\"");
}

TEST(AppendJsonString, EveryByteGivesValidJson) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const auto parsed = parse_json(string_json(text));
      ASSERT_TRUE(parsed.is_string()) << first << ' ' << second;
      if (first < 0x80 && second < 0x80) {
        ASSERT_EQ(parsed.get<std::string>(), text);
      }
    }
  }
}

TEST(AppendJsonFloat, ReadsBackAsTheSameFloat) {
  EXPECT_EQ(written(0.0F), "0.0");
  EXPECT_EQ(written(-9999.0F), "-9999.0");
  EXPECT_EQ(written(-0.25F), "-0.25");
  EXPECT_EQ(written(-0.1F), "-0.1");
  EXPECT_EQ(written(-1e-30F), "-1e-30");
  for (const float value : {-0.105360515F, 3.4028235e38F, 1.1754944e-38F, -7.0F, 123456.789F}) {
    EXPECT_EQ(parse_json(written(value)).get<float>(), value);
  }
}

TEST(AppendJsonInteger, HoldsAll64Bits) {
  std::string out;
  append_json_integer(std::numeric_limits<std::int64_t>::min(), out);
  out += ' ';
  append_json_integer(std::numeric_limits<std::int64_t>::max(), out);
  EXPECT_EQ(out, "-9223372036854775808 9223372036854775807");
}

}  // namespace
}  // namespace sluice
