#include "base/calendar_day.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sluice {
namespace {

TEST(CalendarDayTest, ReadsItsOwnText) {
  for (const char* text : {"2026-11-25", "2024-02-29", "0000-01-01", "9999-12-31"}) {
    const auto day = parse_day(text);
    ASSERT_TRUE(day) << text;
    EXPECT_EQ(day_text(*day), text);
  }
  EXPECT_EQ(parse_day("2026-11-25"), std::chrono::year(2026) / 11 / 25);
}

TEST(CalendarDayTest, RefusesOtherFormsAndDaysThatDoNotExist) {
  for (const char* text :
       {"", "2026-11-2", "2026-11-255", "25.11.2026", "2026/11/25", "2026-1a-25", "-026-11-25",
        "2026-11-+5", "2026-00-10", "2026-13-10", "2026-10-00", "2026-02-29", "2026-11-31"}) {
    EXPECT_FALSE(parse_day(text)) << text;
  }
}

}  // namespace
}  // namespace sluice
