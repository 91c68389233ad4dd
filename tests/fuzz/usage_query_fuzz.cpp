// Queries of /v1/usage. An accepted one has two dates in order; a refused one names its field.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/usage_report.h"
#include "gateway/usage_store.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto query = parse_usage_query(text, "2026-11-23");
  if (query) {
    CHECK(query->first.size() == 10 && query->last.size() == 10 && query->first <= query->last);
    CHECK(month_start(query->first) <= query->first);
  } else {
    CHECK(query.error().status == 400);
  }
  if (const auto amount = parse_amount(text)) {
    CHECK(*amount >= 0);
    CHECK(*parse_amount(amount_text(*amount)) == *amount);
  }
  return 0;
}
