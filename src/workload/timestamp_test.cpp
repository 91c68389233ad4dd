#include "workload/timestamp.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Timestamp, FormsThatTracesHave) {
  EXPECT_EQ(parse_timestamp("1970-01-01 00:00:00"), Duration(0));
  EXPECT_EQ(parse_timestamp("2023-11-16 18:15:46.6805900"),
            seconds(1'700'158'546) + nanoseconds(680'590'000));
  EXPECT_EQ(parse_timestamp("2023-11-16T18:15:46.123456789Z"),
            seconds(1'700'158'546) + nanoseconds(123'456'789));
  EXPECT_EQ(parse_timestamp("2023-11-16 18:15:46.1"),
            seconds(1'700'158'546) + nanoseconds(100'000'000));
  EXPECT_EQ(parse_timestamp("2024-05-10 00:00:00.009930+00:00"),
            seconds(1'715'299'200) + nanoseconds(9'930'000));
  EXPECT_EQ(parse_timestamp("2024-05-10 02:00:00+02:00"), seconds(1'715'299'200));
  EXPECT_EQ(parse_timestamp("2024-05-09 18:30:00-0530"), seconds(1'715'299'200));
}

TEST(Timestamp, DaysFollowOneAnother) {
  EXPECT_EQ(*parse_timestamp("2023-12-31 23:59:59.9999999") + nanoseconds(100),
            *parse_timestamp("2024-01-01 00:00:00"));
  EXPECT_EQ(*parse_timestamp("2024-02-28 23:59:59") + seconds(1),
            *parse_timestamp("2024-02-29 00:00:00"));
}

TEST(Timestamp, OtherTextIsRefused) {
  for (const char* text : {"",
                           "2023",
                           "2023-11-16",
                           "2023-11-16 18:15",
                           "2023-11-16 18:15:60",
                           "2023-11-16 24:00:00",
                           "2023-02-29 00:00:00",
                           "2023-13-01 00:00:00",
                           "2023-00-01 00:00:00",
                           "2023-01-00 00:00:00",
                           "1969-12-31 23:59:59",
                           "2200-01-01 00:00:00",
                           "2023-11-16 18:15:46.",
                           "2023-11-16 18:15:46.1234567890",
                           "2023-11-16 18:15:46.9999999999999999999999999999",
                           "2023-11-16 18:15:46 ",
                           " 2023-11-16 18:15:46",
                           "2023-11-16_18:15:46",
                           "2023-11-16 18:15:4a",
                           "2023-1-16 18:15:46",
                           "+023-11-16 18:15:46",
                           "2023-11-16 18:15:46+",
                           "2023-11-16 18:15:46+1",
                           "2023-11-16 18:15:46+16:00",
                           "2023-11-16 18:15:46Zulu",
                           "2023-11-16 18:15:46.1.2",
                           "1700158546.68"}) {
    EXPECT_EQ(parse_timestamp(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace sluice
