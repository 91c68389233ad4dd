// /v1/kv/prefixes: pins of prefixes (engine/pin_table.h). The body of a PUT says what is pinned;
// the answers say where the blocks are. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "engine/pin_table.h"
#include "server/api_error.h"
#include "server/body_fields.h"
#include "server/generation_call.h"

namespace sluice {

inline constexpr std::int64_t kDefaultPinSeconds = 3600;
inline constexpr std::int64_t kMostPinSeconds = 7 * 86400;
inline constexpr std::size_t kMaxPinIdBytes = 64;
// The same as a JSON Schema pattern.
inline constexpr std::string_view kPinIdPattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";

bool is_pin_id(std::string_view id);

// Reads the body of a PUT: a prompt as that of a chat or of a completion, whose one token of output
// is left out. `pin` of the result has the time to live.
ApiResult<GenerationCall> parse_pin_call(std::string_view body, BodyReading reading);

// `unix_seconds`: the wall-clock time at `now`.
std::string pin_json(const PinStatus& pin, TimePoint now, std::int64_t unix_seconds);
std::string pin_list_json(std::span<const PinStatus> pins, TimePoint now,
                          std::int64_t unix_seconds);
std::string pin_deleted_json(std::string_view id);

}  // namespace sluice
