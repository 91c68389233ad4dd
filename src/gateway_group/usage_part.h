// UsagePart: a part of one gateway's rows of usage of one day, in etcd:
//
//   PREFIX/usage/DAY/STORE/PART   {"rows": [[tenant, function, requests, prompt tokens,
//                                 output tokens, core ns, then active and idle of each memory]]}
//
// STORE is the id of the gateway's file of usage (UsageStore::id). So a gateway that starts again
// with its file replaces what is there, and one with a new file adds to it. A row is always in the
// part of its tenant and function, so a change of few functions writes few parts.
// Values: plain. Functions: pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gateway/usage_row.h"

namespace sluice {

inline constexpr std::uint32_t kUsageParts = 32;  // of one day of one gateway; etcd's keys have it
// Bytes of a part. etcd takes at most 1.5 MiB in a request.
inline constexpr std::size_t kMaxUsagePart = std::size_t{1} << 20;

struct UsagePartKey {
  std::string day;  // "2026-11-25"
  std::string store;
  std::uint32_t part = 0;
  friend auto operator<=>(const UsagePartKey&, const UsagePartKey&) = default;
};

// By tenant and function; of one day and one part.
using UsagePartRows = std::map<std::pair<std::string, std::string>, UsageRow>;

std::uint32_t usage_part_of(const UsageRow& row);

// The beginning of all keys of a day; of all days if `day` is empty.
std::string usage_day_prefix(const std::string& prefix, std::string_view day);
std::string usage_part_key(const std::string& prefix, const UsagePartKey& key);
// kInvalidArgument: it is not the key of a part.
Result<UsagePartKey> parse_usage_part_key(const std::string& prefix, std::string_view key);

std::string usage_part_json(const UsagePartRows& rows);
// The rows, with `day`. Errors name the row.
Result<std::vector<UsageRow>> parse_usage_part(std::string_view text, const std::string& day);

}  // namespace sluice
