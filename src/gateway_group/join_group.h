// join_group(): a gateway's way into its group, before it serves. It takes the gateway's name, and
// gets the functions file of the group. It waits for as long as an earlier process of the name,
// which was killed, holds it. Blocks the caller.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "etcd/etcd_message.h"
#include "gateway_group/gateway_group.h"

namespace sluice {

struct GroupCalls {
  // Sends a call and waits for the body of its answer.
  std::function<Result<std::string>(const EtcdCall&)> ask;
  std::function<void(Duration)> sleep;
};

// `functions`: published if the group has no functions file yet. kUnavailable: etcd does not
// answer, or another process lives that has the name.
Result<GroupStart> join_group(const GroupOptions& options, const std::string& functions,
                              const GroupCalls& calls, const Clock& clock);

}  // namespace sluice
