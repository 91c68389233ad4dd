#include "workload/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

// All rows, or the error.
Result<std::vector<std::vector<std::string>>> rows_of(std::string_view text) {
  ASSIGN_OR_RETURN(CsvReader csv, CsvReader::open(text, "file"));
  std::vector<std::vector<std::string>> rows = {csv.columns()};
  while (true) {
    ASSIGN_OR_RETURN(const bool more, csv.next());
    if (!more) return rows;
    std::vector<std::string> row;
    for (std::size_t i = 0; i < csv.columns().size(); ++i) row.push_back(csv.field(i));
    rows.push_back(row);
  }
}

std::string error_of_csv(std::string_view text) {
  const auto rows = rows_of(text);
  return rows ? "accepted" : rows.error().message;
}

TEST(CsvReader, PlainRows) {
  const auto rows = rows_of("a,b\n1,2\n,\n");
  ASSERT_TRUE(rows);
  EXPECT_THAT(*rows,
              ElementsAre(ElementsAre("a", "b"), ElementsAre("1", "2"), ElementsAre("", "")));
}

TEST(CsvReader, QuotesLineEndsAndByteOrderMark) {
  const auto rows = rows_of("\xEF\xBB\xBF\"a\",b\r\n\"x, \"\"y\"\"\",2\r\n\"\",\"\"\r\n\r\n\n");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_THAT(
      *rows, ElementsAre(ElementsAre("a", "b"), ElementsAre("x, \"y\"", "2"), ElementsAre("", "")));
}

TEST(CsvReader, LastLineNeedsNoEnd) {
  const auto rows = rows_of("a\n1");
  ASSERT_TRUE(rows);
  EXPECT_THAT(*rows, ElementsAre(ElementsAre("a"), ElementsAre("1")));
}

TEST(CsvReader, LinesAreCounted) {
  auto csv = CsvReader::open("a\n1\n2\n", "file");
  ASSERT_TRUE(csv);
  ASSERT_TRUE(csv->next());
  EXPECT_EQ(csv->line(), 2);
  ASSERT_TRUE(csv->next());
  EXPECT_EQ(csv->line(), 3);
  EXPECT_EQ(csv->find("a"), 0U);
  EXPECT_EQ(csv->find("b"), std::nullopt);
}

TEST(CsvReader, ErrorsNameTheLine) {
  EXPECT_EQ(error_of_csv(""), "file:1: is empty, expected a line of column names");
  EXPECT_EQ(error_of_csv("\na\n"), "file:1: is empty, expected a line of column names");
  EXPECT_EQ(error_of_csv("a,b,a\n"), "file:1: column \"a\" is named twice");
  EXPECT_EQ(error_of_csv("a,b\n1\n"),
            "file:2: got 1 fields, expected 2 as in the line of column names");
  EXPECT_EQ(error_of_csv("a,b\n1,2\n1,2,3\n"),
            "file:3: got 3 fields, expected 2 as in the line of column names");
  EXPECT_EQ(error_of_csv("a,b\n\n1,2\n"), "file:2: is blank, expected 2 fields");
  EXPECT_EQ(error_of_csv("a,b\n1,\"2\n"),
            "file:2: field 2 begins with a quote and has no closing one on this line");
  EXPECT_EQ(error_of_csv("a,b\n\"1\"x,2\n"),
            "file:2: field 1: got \"x\" after the closing quote, expected a comma");
}

TEST(CsvReader, LengthsAreWholeAndPositive) {
  auto csv =
      CsvReader::open("n\n1\n1000000000\n0\n-1\n1.0\n 1\n1000000001\n99999999999999\n\n", "f");
  ASSERT_TRUE(csv);
  ASSERT_TRUE(csv->next());
  EXPECT_EQ(csv->length(0).value(), 1);
  ASSERT_TRUE(csv->next());
  EXPECT_EQ(csv->length(0).value(), 1'000'000'000);
  for (const char* bad : {"0", "-1", "1.0", " 1", "1000000001", "99999999999999"}) {
    ASSERT_TRUE(csv->next());
    const auto length = csv->length(0);
    ASSERT_FALSE(length);
    EXPECT_EQ(length.error().message,
              "f:" + std::to_string(csv->line()) + ": column \"n\": got \"" + bad +
                  "\", expected a whole number of tokens from 1 to 1000000000");
  }
}

TEST(CsvReader, OddTextIsEscapedAndCutInMessages) {
  const std::string text = "n\n\"a\t\xFF\"\"" + std::string(200, 'x') + "\"\n";
  auto csv = CsvReader::open(text, "f");
  ASSERT_TRUE(csv);
  ASSERT_TRUE(csv->next());
  EXPECT_EQ(csv->unexpected(0, "y").message, "f:2: column \"n\": got \"a\\x09\\xff\\\"" +
                                                 std::string(56, 'x') + "...\", expected y");
}

}  // namespace
}  // namespace sluice
