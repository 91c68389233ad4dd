// The part of `sluice gateway --etcd URL` in its group of gateways: its options, its way in, and
// what the group's news change: the functions file, the quotas of tenants, the money they have
// spent elsewhere. It has the usage of the group, too.
// Owner: the command. Threads: the event loop's, before or while it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/etcd_options.h"
#include "base/clock.h"
#include "base/result.h"
#include "etcd/etcd_client.h"
#include "etcd/etcd_members.h"
#include "gateway/usage_book.h"
#include "gateway/usage_report.h"
#include "gateway_group/gateway_group.h"
#include "gateway_group/group_usage.h"
#include "gateway_group/use_elsewhere.h"
#include "http/event_loop.h"
#include "server/api_keys.h"
#include "server/key_quotas.h"
#include "serverless/functions_file.h"

namespace sluice {

// As given; empty = not given.
struct GroupArguments {
  EtcdArguments etcd = {.prefix = "/sluice/gateways"};
  std::string name;
};

// A gateway that has joined its group and does not serve yet.
struct JoinedGroup {
  std::unique_ptr<EtcdMembers> etcd;
  GroupOptions options;
  GroupStart start;
};

// Waits until the name is free. None without --etcd. `functions_path`: the file that the group gets
// if it has none yet.
Result<std::optional<JoinedGroup>> enter_group(const GroupArguments& arguments,
                                               const std::string& functions_path,
                                               const Clock& clock);

// The file of usage that a group is to know.
struct GroupUsageStart {
  std::string store;           // UsageStore::id()
  std::vector<UsageRow> rows;  // in it, since the start of last month
};

// The money of a tenant's quota that the other gateways know of.
struct MoneyElsewhere {
  double units = 0;            // of the day
  double units_before = 0;     // of the month, before the day
  double own_units_known = 0;  // of the day: what the others know of this gateway
  std::int32_t parts = 1;      // above 1: etcd is lost, and each has an even part of the rest
};

class GatewayMember final : public GatewayGroup::Listener {
 public:
  // REQUIRES: all outlive it.
  struct Parts {
    KeyQuotas& quotas;
    const ApiKeys& keys;
    const FunctionsFile& file;
    const UsageBook& book;
    const PriceList& prices;
    std::function<void(const std::string& text)> functions;  // another file is published
    std::function<void()> fenced;  // another process has this gateway's name: it must end
  };

  // Null without a group.
  static Result<std::unique_ptr<GatewayMember>> open(std::optional<JoinedGroup> joined,
                                                     const GroupUsageStart& usage,
                                                     http::EventLoop& loop, const Clock& clock,
                                                     const Parts& parts);

  // Starts its ticks.
  void start();
  // Applies the group's functions file again.
  void read_functions_again() { group_->read_functions_again(); }
  MoneyElsewhere money(const std::string& tenant) const;
  // All that were ever in the group, as of the last news.
  UsageGateways gateways() const;
  UsageGroup& usage_group() { return *usage_; }
  void write_metrics(std::string_view prefix, std::string& out) const;
  // Publishes the last usage and gives the name back. REQUIRES: the loop has ended, and the
  // UsageKeeper has stopped.
  void stop();

 private:
  GatewayMember(std::unique_ptr<EtcdMembers> members, http::EventLoop& loop, const Parts& parts)
      : members_(std::move(members)), loop_(loop), parts_(parts) {}
  void tick();
  std::string day() const;
  GatewayUse use() override;
  void on_round(const GroupView& view) override;
  void on_functions(const std::string& text) override { parts_.functions(text); }
  void on_lost(const std::string& cause) override;
  void on_fenced() override { parts_.fenced(); }

  const std::unique_ptr<EtcdMembers> members_;
  http::EventLoop& loop_;
  const Parts parts_;
  std::unique_ptr<EtcdClient> etcd_;
  std::unique_ptr<GatewayGroup> group_;
  std::unique_ptr<GroupUsage> usage_;
  UseElsewhere elsewhere_;
  std::string name_;
  std::set<std::string> others_;
  std::map<std::string, std::int64_t> usage_written_;  // as of GroupView
  GatewayUse told_;                                    // to the others, last
  std::int32_t gateways_ = 1;                          // that live, as of the last news
  std::int32_t quota_parts_ = 1;
};

}  // namespace sluice
