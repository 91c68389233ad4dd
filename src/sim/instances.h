// Instances: replicas that start when requests find no room and end when they are idle, from none
// and back. So time to first token has the wait for a start, as in the evaluation of Medusa
// (https://doi.org/10.1145/3669940.3707285, section 7.5), whose artifact has these rules
// (github.com/thustorage/Medusa, scripts/scheduler.py):
//
// A request goes to the first instance that has fewer than `room` requests, also while it starts.
// If there is none, one more instance starts, `most` at a time. If there are as many, it goes to
// the one with the fewest requests.
// Owner: a simulation. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sim/replica.h"

namespace sluice {

struct InstanceOptions {
  std::int32_t most = 1;
  std::int32_t room = 16;  // requests that an instance takes before one more starts
  Duration start{0};       // from the request that needs it to its first step
  Duration idle{0};        // without a request, until an instance ends
};

// "MOST,ROOM,START" or "MOST,ROOM,START,IDLE": two counts and times in seconds. kInvalidArgument
// quotes the part that is wrong.
Result<InstanceOptions> parse_instances(std::string_view text);

class Instances {
 public:
  // REQUIRES: as Replica's constructor.
  Instances(const InstanceOptions& options, const ReplicaOptions& replica, StepCost& cost,
            ServingRecorder& recorder);

  // Advances to the arrival and adds the request to an instance. REQUIRES: arrivals are in order.
  void add(const WorkloadRequest& request);
  // Advances until nothing is left to do.
  void finish();

  std::int64_t starts() const { return starts_; }
  // The sums have instances that have ended, too.
  ReplicaStats stats() const;
  Duration last_end() const;

 private:
  Replica& choose(Duration now);
  void end_idle(Duration now);

  const InstanceOptions options_;
  const ReplicaOptions replica_;
  StepCost& cost_;
  ServingRecorder& recorder_;
  std::vector<std::unique_ptr<Replica>> instances_;
  std::int64_t starts_ = 0;
  ReplicaStats ended_;
  Duration last_end_{0};
};

}  // namespace sluice
