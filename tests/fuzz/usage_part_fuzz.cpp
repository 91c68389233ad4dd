// Parts of usage that other gateways have put into etcd. The first line is a key, the rest is its
// value. Accepted ones survive writing and reading.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gateway_group/usage_part.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view line = text.substr(0, text.find('\n'));
  const auto key = parse_usage_part_key("/g", line);
  if (key) CHECK(usage_part_key("/g", *key) == line);
  const auto rows =
      parse_usage_part(text.substr(line.size() == size ? size : line.size() + 1), "2026-11-25");
  if (!rows) return 0;
  UsagePartRows part;
  for (const UsageRow& row : *rows) {
    CHECK(row.usage.requests >= 0 && row.usage.core_ns >= 0);
    part[{row.tenant, row.function}] = row;
  }
  const std::string written = usage_part_json(part);
  const auto again = parse_usage_part(written, "2026-11-25");
  // Escapes may make a text longer than it was.
  if (written.size() > kMaxUsagePart) return 0;
  CHECK(again && again->size() == part.size());
  return 0;
}
