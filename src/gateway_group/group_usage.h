// GroupUsage: one gateway's usage in its group: it puts the own rows into etcd about every kRound,
// and reads those of the others when a report needs them. A thread of its own waits for etcd, so
// neither the event loop nor the writes of the file do.
// Owner: the command. Threads: tick() and stop() from the event loop's; written() and read() from
// the UsageKeeper's. REQUIRES: `ask` works on any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/job_thread.h"
#include "gateway/usage_group.h"
#include "gateway_group/usage_publisher.h"

namespace sluice {

class GroupUsage final : public UsageGroup {
 public:
  static constexpr Duration kRound = std::chrono::seconds(5);

  // `rows`: those that the file has already, of the days that the group is to know.
  GroupUsage(UsagePublisherOptions options, std::span<const UsageRow> rows, UsagePublisher::Ask ask,
             const Clock& clock);
  ~GroupUsage() override { stop(); }

  // Publishes if it is time to.
  void tick();
  // Publishes what is left, and waits for it. REQUIRES: the keeper has stopped.
  void stop();

  void written(std::span<const UsageRow> rows) override;
  void read(std::string first, std::string last, Done done) override;

 private:
  // On the thread.
  void publish();

  const UsagePublisherOptions options_;
  const UsagePublisher::Ask ask_;
  const Clock& clock_;
  std::mutex mutex_;
  std::vector<UsageRow> news_;  // guarded by `mutex_`; since the last round
  UsagePublisher publisher_;    // the thread's
  bool failed_ = false;         // the thread's: the last publish
  bool read_failed_ = false;    // the thread's: the last read
  std::atomic<bool> publishing_{false};
  TimePoint next_;
  bool stopped_ = false;
  JobThread jobs_;  // last: it ends before what it uses
};

}  // namespace sluice
