#include "gateway_group/join_group.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace sluice {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(500);

// None: another process has the name.
Result<std::optional<GroupStart>> claim_name(const GroupOptions& options, const GroupCalls& calls,
                                             const Clock& clock) {
  const TimePoint sent = clock.now();
  ASSIGN_OR_RETURN(const std::string granted, calls.ask(etcd_grant(options.ttl_s)));
  ASSIGN_OR_RETURN(const EtcdLease lease, parse_etcd_lease(granted));
  EtcdTransaction transaction;
  const std::string key = group_live_key(options.prefix, options.name);
  transaction.absent = {key};
  transaction.reads = {key};
  transaction.lease = lease.id;
  transaction.leased = {{key, options.process}};
  ASSIGN_OR_RETURN(const std::string answer, calls.ask(etcd_transaction(transaction)));
  ASSIGN_OR_RETURN(const EtcdOutcome outcome, parse_etcd_outcome(answer));
  if (!outcome.succeeded) {
    // Not needed; without this it ends by itself.
    static_cast<void>(calls.ask(etcd_revoke(lease.id)));
    return std::optional<GroupStart>();
  }
  return std::optional(GroupStart{lease.id, sent + std::chrono::seconds(lease.ttl_s), {}});
}

Result<std::string> group_functions(const GroupOptions& options, const std::string& own,
                                    const GroupCalls& calls) {
  ASSIGN_OR_RETURN(const std::string answer,
                   calls.ask(publish_functions(options.prefix, own, Publish::kOnlyFirst)));
  ASSIGN_OR_RETURN(const EtcdOutcome outcome, parse_etcd_outcome(answer));
  if (outcome.succeeded) {
    log_info(fmt::format("etcd: this functions file is the first one below {}", options.prefix));
    return own;
  }
  if (outcome.pairs.size() != 1) return unavailable("etcd's answer has no functions file");
  return outcome.pairs.front().value;
}

}  // namespace

Result<GroupStart> join_group(const GroupOptions& options, const std::string& functions,
                              const GroupCalls& calls, const Clock& clock) {
  if (functions.size() > GatewayGroup::kMaxFunctions) {
    return invalid_argument("the functions file has more than 1 MiB, the most that etcd takes");
  }
  // An earlier process of this name that was killed holds it for the rest of its lease.
  const TimePoint until = clock.now() + 2 * std::chrono::seconds(options.ttl_s);
  for (bool told = false;;) {
    auto claimed = claim_name(options, calls, clock);
    if (claimed && *claimed) {
      ASSIGN_OR_RETURN((*claimed)->functions, group_functions(options, functions, calls));
      return **std::move(claimed);
    }
    if (clock.now() >= until) {
      if (!claimed) return std::move(claimed).error();
      return unavailable(fmt::format(
          "another gateway with the name '{}' lives; give each its own (--name)", options.name));
    }
    if (!std::exchange(told, true)) {
      log_warning(claimed ? fmt::format("etcd: the name '{}' is taken; waiting for the end of its "
                                        "lease",
                                        options.name)
                          : fmt::format("etcd: {}; trying again", claimed.error().message));
    }
    calls.sleep(kPause);
  }
}

}  // namespace sluice
