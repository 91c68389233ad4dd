// Price lists. An accepted list gives finite money that does not fall as units grow.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "serverless/bill.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto prices =
      parse_prices(std::string_view(reinterpret_cast<const char*>(data), size), "p.toml");
  if (!prices) {
    CHECK(prices.error().message.starts_with("p.toml:"));
    return 0;
  }
  double before = 0;
  for (const double units : {0.0, 1.0, 1e6, 1e9, 1e12}) {
    const double money = money_for(units, 0, *prices);
    CHECK(std::isfinite(money) && money >= before);
    before = money;
  }
  return 0;
}
