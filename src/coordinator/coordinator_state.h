// CoordinatorState: where a coordinator's book is kept. In memory only, or in etcd: then one of
// several coordinators leads and has a book, and each answer waits until etcd has what it depends
// on. Owner: the command. Threads: the event loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "etcd/etcd_leader.h"
#include "lending/lending_book.h"

namespace sluice {

class CoordinatorState : private EtcdLeader::Listener {
 public:
  // Between two warnings with different causes.
  static constexpr Duration kTellPause = std::chrono::seconds(10);

  // In memory.
  CoordinatorState(LendingOptions options, const Clock& clock);
  // In etcd. REQUIRES: `calls` and `clock` outlive it. `options.first_epoch` is not looked at.
  CoordinatorState(LendingOptions options, const Clock& clock, EtcdCalls& calls,
                   EtcdLeaderOptions etcd);

  // The book; nullptr: this coordinator does not lead, see cause(). REQUIRES: after each change of
  // the book the caller calls store().
  LendingBook* book();
  std::string cause() const;
  // Stores what has changed in the book; `done(true)` when it is stored with all before, perhaps at
  // once; `done(false)` when this coordinator does not lead any more: it is unknown then.
  void store(std::function<void(bool stored)> done);

  // Does what is due; called every 100 ms.
  void tick();
  // Gives leadership back; the call to send to etcd, if there is one.
  std::optional<EtcdCall> resign();
  bool in_etcd() const { return leader_ != nullptr; }

 private:
  void on_lead(std::int64_t epoch, std::vector<EtcdPair> state) override;
  void on_lost(const std::string& cause) override;
  void tell();

  const LendingOptions options_;
  const Clock& clock_;
  std::unique_ptr<EtcdLeader> leader_;  // nullptr: in memory
  std::optional<LendingBook> book_;
  bool settled_stored_ = false;
  std::string cause_;
  std::string told_cause_;  // why etcd did not answer, as of the last warning
  TimePoint told_at_{};
  std::uint64_t next_wait_ = 0;
  std::map<std::uint64_t, std::function<void(bool)>> waiting_;
};

}  // namespace sluice
