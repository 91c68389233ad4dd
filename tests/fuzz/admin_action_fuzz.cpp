// Bodies of POST /gateway/actions. An accepted one has exactly the names that its action needs.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/admin_action.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto action =
      parse_admin_action(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!action) {
    CHECK(action.error().status == 400 && !action.error().message.empty());
    return 0;
  }
  const bool move = action->verb == AdminVerb::kLoad || action->verb == AdminVerb::kUnload;
  CHECK(action->verb == AdminVerb::kStop || (action->tenant.empty() && action->function.empty()));
  CHECK(move || action->backbone.empty());
  return 0;
}
