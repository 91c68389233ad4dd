#include "server/ignored_fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(IgnoredFields, ANameIsSafeInAHeaderAndCut) {
  EXPECT_EQ(shown_field_name("stream_options.foo-1"), "stream_options.foo-1");
  EXPECT_EQ(shown_field_name("a b\r\nX: \"\xC3\xA4%,"), "a%20b%0D%0AX%3A%20%22%C3%A4%25%2C");
  EXPECT_EQ(shown_field_name(std::string(65, 'x')), std::string(64, 'x'));
  EXPECT_EQ(shown_field_name(std::string("\0", 1)), "%00");
}

TEST(IgnoredFields, TheHeaderListsTheNames) {
  const std::vector<IgnoredField> fields = {{"foo", ""}, {"logprob", "logprobs"}};
  EXPECT_EQ(ignored_fields_value(fields), "foo, logprob");
}

TEST(IgnoredFields, EachNameIsLoggedOnce) {
  IgnoredFieldLog log;
  const std::vector<IgnoredField> fields = {{"foo", ""}, {"logprob", "logprobs"}};
  EXPECT_THAT(log.new_lines(fields),
              ElementsAre(HasSubstr("\"foo\", which this server does not know; it is ignored;"),
                          HasSubstr("ignored (did you mean \"logprobs\"?)")));
  EXPECT_THAT(log.new_lines(fields), IsEmpty());
}

TEST(IgnoredFields, TheLogRemembersAHundredNames) {
  IgnoredFieldLog log;
  std::size_t lines = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<IgnoredField> fields = {{fmt::format("field{}", i), ""}};
    lines += log.new_lines(fields).size();
  }
  EXPECT_EQ(lines, kMaxLoggedFields + 1);
}

}  // namespace
}  // namespace sluice
