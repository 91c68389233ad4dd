// KeyLimits: what the clients of one name in the key file may use. Settings behind a key give them:
//   rpm=60 tpm=100000 concurrency=4 queue=25% priority=0 weight=2 pins=2GiB
// Values: plain; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct KeyLimits {
  std::optional<std::int64_t> requests_per_minute;  // rpm: calls that generate
  std::optional<std::int64_t> tokens_per_minute;    // tpm: of prompts and answers
  std::optional<std::int64_t> concurrency;          // calls at once
  std::optional<std::int64_t> queue_percent;        // of the requests that the server holds at once
  std::optional<std::int64_t> best_priority;        // priority: the lowest number that is accepted
  std::optional<std::int64_t> weight;               // share beside other clients; 1 without it
  std::optional<std::int64_t> pinned_bytes;         // pins: of KV memory that its pins need

  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

// Reads one setting. kNotFound: there is none of that name. kInvalidArgument: not a value for it,
// or it is given twice; the message does not repeat the text.
Status read_limit(std::string_view name, std::string_view value, KeyLimits& limits);

// Adds the limits of another line with the same name. kInvalidArgument if two lines differ.
Status merge_limits(const KeyLimits& more, KeyLimits& limits);

}  // namespace sluice
