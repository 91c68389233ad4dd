#include "gateway_group/usage_publisher.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/log.h"
#include "gateway_group/gateway_group.h"

namespace sluice {

void UsagePublisher::add(std::span<const UsageRow> rows) {
  for (const UsageRow& row : rows) {
    const UsagePartKey key{row.day, options_.store, usage_part_of(row)};
    parts_[key][{row.tenant, row.function}] = row;
    changed_.insert(key);
  }
}

Status UsagePublisher::publish(const Ask& ask, std::int64_t unix_seconds) {
  while (!changed_.empty()) RETURN_IF_ERROR(publish_some(ask, unix_seconds));
  return {};
}

Status UsagePublisher::publish_some(const Ask& ask, std::int64_t unix_seconds) {
  EtcdTransaction transaction;
  const std::string written_key = group_usage_key(options_.prefix, options_.name);
  transaction.equal = {{group_live_key(options_.prefix, options_.name), options_.process, 0, 0}};
  transaction.reads = {written_key};
  std::set<UsagePartKey> taken;
  std::size_t bytes = 0;
  for (const UsagePartKey& key : changed_) {
    if (transaction.changes.size() == kMaxParts || bytes >= kFullBytes) break;
    std::string text = usage_part_json(parts_[key]);
    const bool fits = text.size() <= kMaxUsagePart;
    // One that is alone in its write fits, whatever its size.
    if (fits && bytes > 0 && bytes + text.size() > kMaxUsagePart) break;
    taken.insert(key);
    if (fits) {
      bytes += text.size();
      transaction.changes.push_back({usage_part_key(options_.prefix, key), std::move(text)});
    } else if (too_large_.insert(key).second) {
      log_error(
          fmt::format("{}: the usage of {} functions has more than 1 MiB; other gateways do "
                      "not see it",
                      usage_part_key(options_.prefix, key), parts_[key].size()));
    }
  }
  transaction.changes.push_back({written_key, std::to_string(unix_seconds)});
  ASSIGN_OR_RETURN(const std::string body, ask(etcd_transaction(transaction)));
  ASSIGN_OR_RETURN(const EtcdOutcome outcome, parse_etcd_outcome(body));
  if (!outcome.succeeded) {
    return unavailable(fmt::format("the name '{}' is not this process's", options_.name));
  }
  const bool was_forgotten = was_written_ && outcome.pairs.empty();
  was_written_ = true;
  for (const UsagePartKey& key : taken) changed_.erase(key);
  if (!was_forgotten) return {};
  log_warning("etcd has lost its data: the usage is written again");
  for (const auto& [key, rows] : parts_) {
    if (!taken.contains(key)) changed_.insert(key);
  }
  return {};
}

}  // namespace sluice
