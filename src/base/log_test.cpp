#include "base/log.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Log, AMessageIsOneLineWithoutControlCharacters) {
  EXPECT_EQ(log_line("plain text, \u00fcber"), "plain text, \u00fcber");
  EXPECT_EQ(log_line("a\n2026-01-01 00:00:00.000 error forged\r"),
            "a\\x0a2026-01-01 00:00:00.000 error forged\\x0d");
  EXPECT_EQ(log_line("\x1b[2Jx\x7f"), "\\x1b[2Jx\\x7f");
  EXPECT_EQ(log_line("\u009b31m"), "\\xc2\\x9b31m");  // the same in C1
  EXPECT_EQ(log_line("\xff \xc3"), "\\xff \\xc3");
  EXPECT_EQ(log_line(""), "");
}

TEST(Log, LongMessagesAreCut) {
  const std::string most(kMaxLogBytes, 'x');
  EXPECT_EQ(log_line(most), most);
  EXPECT_EQ(log_line(most + "yz"), most + " (and 2 bytes)");
}

}  // namespace
}  // namespace sluice
