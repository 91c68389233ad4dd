#include "loadgen/sse_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> events_of(std::string_view text, std::size_t piece) {
  SseParser parser;
  std::vector<std::string> events;
  while (!text.empty()) {
    const auto take = [&](std::string_view data) { events.emplace_back(data); };
    EXPECT_TRUE(parser.put(text.substr(0, piece), take));
    text.remove_prefix(std::min(piece, text.size()));
  }
  return events;
}

TEST(SseParser, GivesTheDataOfEachEventHoweverItIsCut) {
  const std::string text =
      "\xEF\xBB\xBF: welcome\n\ndata: {\"a\":1}\n\nevent: x\ndata:two\r\ndata: lines\r\n\r\n"
      "id: 3\n\nretry: 5\rdata\r\rdata:  blank kept\n\ndata: [DONE]\n\ndata: unfinished";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_THAT(events_of(text, piece),
                ElementsAre("{\"a\":1}", "two\nlines", "", " blank kept", "[DONE]"))
        << piece;
  }
}

TEST(SseParser, FieldsThatOnlyBeginLikeDataAreNone) {
  EXPECT_THAT(events_of("data2: x\ndat: y\n data: z\n\n", 100), IsEmpty());
}

TEST(SseParser, RefusesEventsAndLinesBeyondItsLimit) {
  const std::string half(SseParser::kMaxEventBytes / 2, 'x');
  const auto ignore = [](std::string_view) {};
  SseParser one_line;
  EXPECT_TRUE(one_line.put("data: " + half, ignore));
  EXPECT_FALSE(one_line.put(half, ignore));
  SseParser lines;
  EXPECT_TRUE(lines.put("data: " + half + "\n", ignore));
  EXPECT_FALSE(lines.put("data: " + half + "\n", ignore));
}

}  // namespace
}  // namespace sluice
