// AdminAction: the body of POST /gateway/actions, by which an operator changes what a gateway has
// in memory. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/body_fields.h"

namespace sluice {

enum class AdminVerb : std::uint8_t {
  kStop,    // ends the idle process of a function
  kLoad,    // loads a backbone
  kUnload,  // drops an idle backbone
  kReload,  // reads the functions file again
};

struct AdminAction {
  static constexpr std::size_t kMaxNameBytes = 1024;

  AdminVerb verb = AdminVerb::kReload;
  std::string tenant;    // kStop
  std::string function;  // kStop: its full name
  std::string backbone;  // kLoad, kUnload
};

// {"action": "stop", "tenant": "a", "function": "ft:demo:a:poet"}, {"action": "load", "backbone":
// "demo"}, ... 400 for other fields, missing ones and wrong values.
ApiResult<AdminAction> parse_admin_action(std::string_view body);

// The fields that it reads.
BodyFields admin_action_fields();

}  // namespace sluice
