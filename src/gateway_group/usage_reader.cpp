#include "gateway_group/usage_reader.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "etcd/etcd_message.h"
#include "gateway/usage_group.h"
#include "gateway_group/usage_part.h"

namespace sluice {
namespace {

// Base64 makes four bytes of three, so an answer with so many of the largest parts is not too long.
constexpr std::int64_t kFewKeys = 5;
static_assert(kFewKeys * kMaxUsagePart / 3 * 4 < kMaxEtcdBody * 9 / 10);
constexpr std::int64_t kManyKeys = 500;

std::string end_of_day(const std::string& prefix, const std::string& day) {
  std::string end = usage_day_prefix(prefix, day);
  ++end.back();
  return end;
}

Status add_pair(const EtcdPair& pair, const std::string& prefix, const std::string& own_store,
                std::vector<UsageRow>& rows) {
  ASSIGN_OR_RETURN(const UsagePartKey key, parse_usage_part_key(prefix, pair.key));
  if (key.store == own_store) return {};
  auto part = parse_usage_part(pair.value, key.day);
  if (!part) return with_context(pair.key, std::move(part).error());
  rows.insert(rows.end(), std::make_move_iterator(part->begin()),
              std::make_move_iterator(part->end()));
  return {};
}

}  // namespace

Result<std::vector<UsageRow>> read_group_usage(const std::string& prefix,
                                               const std::string& own_store,
                                               const std::string& first, const std::string& last,
                                               const UsagePublisher::Ask& ask) {
  std::vector<UsageRow> rows;
  std::string from = usage_day_prefix(prefix, first);
  const std::string end = end_of_day(prefix, last);
  std::int64_t limit = kFewKeys;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string body, ask(etcd_range_between(from, end, limit)));
    const auto range = parse_etcd_range(body);
    if (!range && body.size() > kMaxEtcdBody && limit > kFewKeys) {
      limit = kFewKeys;
      continue;
    }
    if (!range) return range.error();
    std::vector<UsageRow> page;
    for (const EtcdPair& pair : range->pairs) {
      RETURN_IF_ERROR(add_pair(pair, prefix, own_store, page));
    }
    rows.insert(rows.end(), std::make_move_iterator(page.begin()),
                std::make_move_iterator(page.end()));
    rows = merge_usage(std::move(rows));
    if (!range->more) return rows;
    from = range->pairs.back().key + '\0';
    // The number of keys of this size that fill half of an answer.
    const auto keys = static_cast<std::int64_t>(range->pairs.size() * kMaxEtcdBody / 2 /
                                                std::max<std::size_t>(body.size(), 1));
    limit = std::clamp(keys, kFewKeys, kManyKeys);
  }
}

}  // namespace sluice
