// Messages of memory lending. The first byte says which verb; each line of the rest is a body that
// the book gets. An accepted message survives its text, and no message breaks the book.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "lending/lending_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  LendingBook book({.budgets = {{"cpu", 1000}}}, TimePoint{});
  TimePoint now{std::chrono::seconds(11)};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    const auto verb = lend_verbs()[static_cast<unsigned char>(line[0]) % lend_verbs().size()];
    static_cast<void>(parse_lend_answer(line));
    const auto request = parse_lend_request(verb, line.substr(1));
    if (!request) continue;
    const std::string written = lend_request_json(*request);
    const auto again = parse_lend_request(verb, written);
    CHECK(again && lend_request_json(*again) == written);
    const LendAnswer answer = book.handle(now, *request);
    book.check_integrity();
    CHECK(parse_lend_answer(lend_answer_json(answer)).has_value());
    now = now + std::chrono::milliseconds(700);
  }
  return 0;
}
