// PinOrder: says that the blocks of a request's prompt become a pin when the request has ended
// (engine/pin_table.h). Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace sluice {

struct PinOrder {
  std::string tenant;  // whose pin it is; empty: there are no API keys
  std::string id;      // among those of the tenant
  std::string model;   // the name that the client used
  Duration ttl{0};     // from the end of the request
  // The most bytes of KV memory that the tenant's pins need together; absent: it has no limit.
  std::optional<std::int64_t> max_bytes = std::nullopt;
};

}  // namespace sluice
