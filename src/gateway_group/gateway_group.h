// GatewayGroup: one gateway's part in a group of gateways that share etcd. It holds the gateway's
// name, tells the others what its tenants use, and gets the functions file and the others' use.
//
//   PREFIX/functions           the functions file
//   PREFIX/state/functions     its SHA-256, written together with it
//   PREFIX/state/live/NAME     the process of that name; bound to a lease, which it renews
//   PREFIX/state/use/NAME      its GatewayUse; stays when the process ends
//   PREFIX/state/usage/NAME    when it last wrote its usage (usage_publisher.h)
//
// - A name belongs to one process at a time. A use is written only while the name is this
//   process's, so a late write of an earlier process changes nothing. A process whose name another
//   one has taken is fenced: it must end.
// - Each round writes and then reads, about once in kRound. The others' use is thus at most two
//   rounds and two answers old, unless on_lost() says otherwise.
//
// Owner: the command. Threads: one. Calls of the listener come from tick() and from answers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "etcd/etcd_client.h"
#include "etcd/etcd_message.h"
#include "etcd/lease_keeper.h"
#include "gateway_group/group_message.h"

namespace sluice {

struct GroupOptions {
  std::string prefix;   // "/sluice/gateways", without a slash at its end
  std::string name;     // of this gateway; a member name
  std::string process;  // differs from every other's
  std::int64_t ttl_s = 5;
};

// The state of a process that has just joined.
struct GroupStart {
  std::int64_t lease = 0;
  TimePoint lease_ends;
  std::string functions;  // the functions file of the group
};

struct GroupView {
  std::map<std::string, GatewayUse> others;  // by name, all but the own one
  std::set<std::string> live;                // names, the own one included
  // When each wrote its usage, in seconds since 1970; the own name included.
  std::map<std::string, std::int64_t> usage_written;
};

// Keys of a group.
std::string group_functions_key(const std::string& prefix);
std::string group_live_key(const std::string& prefix, const std::string& name);
std::string group_usage_key(const std::string& prefix, const std::string& name);
// The transaction that makes `text` the functions file of the group. `only_first`: only if there is
// none yet.
enum class Publish : std::uint8_t { kAlways, kOnlyFirst };
EtcdCall publish_functions(const std::string& prefix, const std::string& text, Publish when);

class GatewayGroup {
 public:
  static constexpr Duration kRound = std::chrono::milliseconds(500);
  static constexpr Duration kRetry = LeaseKeeper::kRetry;
  static constexpr std::int64_t kMaxKeys = 1000;  // below PREFIX/state/
  static constexpr std::size_t kMaxFunctions = std::size_t{1} << 20;

  class Listener {
   public:
    virtual ~Listener() = default;
    virtual GatewayUse use() = 0;  // of this gateway, without `process`
    virtual void on_round(const GroupView& view) = 0;
    // Another functions file is published.
    virtual void on_functions(const std::string& text) = 0;
    // etcd was not heard for as long as a lease lasts. on_round() follows once it is.
    virtual void on_lost(const std::string& cause) = 0;
    // Another process has the name. Nothing follows.
    virtual void on_fenced() = 0;
  };

  // REQUIRES: all outlive it, and no call is answered once it has ended.
  GatewayGroup(GroupOptions options, const GroupStart& start, EtcdCalls& calls, const Clock& clock,
               Listener& listener);

  // Does what is due; called every kRetry / 2 or so.
  void tick();
  // Gets the functions file again, although it is the same one.
  void read_functions_again() { functions_digest_.clear(); }
  bool is_lost() const { return is_lost_; }
  // Gives the name back; nothing is written afterwards.
  std::optional<EtcdCall> resign();

 private:
  void begin_round();
  void written(const std::string& use, const Result<std::string>& body);
  void read();
  void read_answered(TimePoint sent, const Result<std::string>& body);
  // Whether the name is this process's; fences it if it is another's.
  bool owns_name(const std::optional<std::string>& holder);
  GroupView view_of(const std::vector<EtcdPair>& pairs);
  void read_functions(std::string digest);
  void functions_answered(const std::string& digest, const Result<std::string>& body);
  void fail(const std::string& cause);
  std::string key(const std::string& rest) const { return options_.prefix + "/state/" + rest; }

  const GroupOptions options_;
  EtcdCalls& calls_;
  const Clock& clock_;
  Listener& listener_;
  bool ended_ = false;
  bool is_lost_ = false;
  std::string cause_;
  TimePoint heard_;

  LeaseKeeper lease_;  // of the name
  bool has_name_ = true;

  bool calling_ = false;  // a round is under way
  TimePoint next_round_{};
  std::optional<std::string> stored_;  // use that etcd has
  std::string functions_digest_;
  std::set<std::string> bad_uses_;  // names whose use was not understood, as logged
};

}  // namespace sluice
