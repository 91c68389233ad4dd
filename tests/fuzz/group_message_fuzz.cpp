// Texts of gateways about the use of their tenants. Each line is a text. An accepted one survives
// writing and reading, and no sequence of them makes a sum negative.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway_group/group_message.h"
#include "gateway_group/use_elsewhere.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  UseElsewhere elsewhere;
  for (int i = 0; !text.empty(); ++i) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto use = parse_group_use(line);
    if (!use) continue;
    const auto again = parse_group_use(group_use_json(*use));
    CHECK(again && *again == *use);
    for (const auto& [name, tenant] :
         elsewhere.update({{"a", *use}, {i % 2 == 0 ? "b" : "c", *use}}, {"a"}, use->day)) {
      CHECK(tenant.new_requests >= 0 && tenant.new_tokens >= 0 && tenant.calls >= 0);
      CHECK(tenant.micro_units >= 0 && tenant.micro_units_before >= 0);
    }
  }
  return 0;
}
