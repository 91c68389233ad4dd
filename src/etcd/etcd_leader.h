// EtcdLeader: at most one of several processes leads at a time, and the state that it writes under
// a prefix is in etcd before it says so. For coordinators and agents.
//
// - Leading: the key PREFIX/leader, bound to an etcd lease that is renewed. leads() is true only
//   while the lease is surely valid: it counts from the sending of the last renewal, on the
//   monotonic clock, so changes of the wall clock do nothing.
// - Fencing: each transaction requires that PREFIX/commit is what this leader wrote last. A late
//   write of an earlier leader, or a late copy of an own one, changes nothing.
// - A write without an answer is repeated until it has one. A leader whose write is not stored for
//   kPatience leases' time, although its lease is renewed, stops leading.
// - The state is the keys PREFIX/state/... A new leader gets all of them.
// Protocol: tests/models/leader.pml. Owner: the command. Threads: one. Calls of the listener come
// from tick() and from answers, never from write().
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "etcd/etcd_client.h"
#include "etcd/etcd_message.h"
#include "etcd/lease_keeper.h"

namespace sluice {

struct EtcdLeaderOptions {
  std::string prefix;  // "/sluice/lending", without a slash at its end
  std::string name;    // of this process; differs from every other's
  std::int64_t ttl_s = 3;
};

class EtcdLeader {
 public:
  static constexpr Duration kRetry = LeaseKeeper::kRetry;
  static constexpr int kPatience = 5;
  // Changes of one transaction, and the bytes of their keys and values. etcd's default limits are
  // 128 operations (--max-txn-ops) and 1.5 MiB (--max-request-bytes).
  static constexpr std::size_t kMaxChanges = 100;
  static constexpr std::size_t kMaxChangedBytes = std::size_t{1} << 20;
  // Keys of one answer, when the state is read; fewer if such an answer is too long.
  static constexpr std::int64_t kPage = 500;

  class Listener {
   public:
    virtual ~Listener() = default;
    // It leads. `epoch` is larger than those of all earlier leaders. `state` has all keys below
    // PREFIX/state/, without that part of their names.
    virtual void on_lead(std::int64_t epoch, std::vector<EtcdPair> state) = 0;
    // It leads no more. Writes that were not stored may or may not be; their callbacks are dropped.
    virtual void on_lost(const std::string& cause) = 0;
  };

  // REQUIRES: all outlive it, and no call is answered once it has ended.
  EtcdLeader(EtcdLeaderOptions options, EtcdCalls& calls, const Clock& clock, Listener& listener);

  // Does what is due; called every kRetry / 2 or so.
  void tick();
  bool leads() const;
  // Why it does not lead, as of the last failed call; empty: another process leads, or none failed.
  const std::string& cause() const { return cause_; }

  // Stores changes after all that were written before; `stored` is called when etcd has them. More
  // than kMaxChanges or kMaxChangedBytes are stored in parts, in order. Without changes `stored`
  // waits for those before. REQUIRES: on_lead() was called, and on_lost() was not since.
  void write(std::vector<EtcdChange> changes, std::function<void()> stored);
  bool idle() const { return queue_.empty(); }  // all writes are stored

  // The call that gives the leader key back, when it has one. Nothing is written afterwards.
  std::optional<EtcdCall> resign();

 private:
  enum class Phase : std::uint8_t { kFollows, kReads, kLeads, kResigned };
  struct Write {
    bool has_room_for(const EtcdChange& change) const;
    void add(EtcdChange change);

    std::map<std::string, std::optional<std::string>> changes;
    std::size_t bytes = 0;
    std::vector<std::function<void()>> stored;
  };

  void campaign();
  void read();
  void flush();
  void lose(const std::string& cause);
  void fail(const std::string& cause);
  std::string commit(std::uint64_t number) const;
  void campaign_answered(const Result<std::string>& body);
  void read_answered(const Result<std::string>& body);
  void flush_answered(std::uint64_t term, const Result<std::string>& body);

  const EtcdLeaderOptions options_;
  EtcdCalls& calls_;
  const Clock& clock_;
  Listener& listener_;
  Phase phase_ = Phase::kFollows;
  std::string cause_;
  TimePoint next_try_{};

  LeaseKeeper lease_;  // of the leader key

  std::uint64_t term_ = 0;  // counts times of leading, for names and late answers
  std::int64_t epoch_ = 0;
  bool calling_ = false;         // a campaign, a read or a transaction is under way
  std::vector<EtcdPair> state_;  // read so far
  std::int64_t page_ = kPage;
  std::deque<Write> queue_;
  bool tried_ = false;         // the first of the queue was sent
  TimePoint tried_since_{};    // when it was sent first
  std::uint64_t commits_ = 0;  // transactions of this term that etcd has
};

}  // namespace sluice
