// ask_etcd(): sends one call to etcd's JSON gateway and waits for its answer, for use before and
// after a run. It has an event loop of its own and blocks the calling thread.
#pragma once

#include <string>

#include "base/result.h"
#include "etcd/etcd_members.h"
#include "etcd/etcd_message.h"

namespace sluice {

// The body of an answer with status 200; errors are those of EtcdCalls, after at most a few
// seconds for each member. If a member does not answer, the call is sent to the next one: etcd may
// do the call more than once.
Result<std::string> ask_etcd(EtcdMembers& members, const EtcdCall& call);

}  // namespace sluice
