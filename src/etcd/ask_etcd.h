// ask_etcd(): sends one call to etcd's JSON gateway and waits for its answer, for use before and
// after a run. It has an event loop of its own and blocks the calling thread.
#pragma once

#include <string>

#include "base/result.h"
#include "etcd/etcd_message.h"

namespace sluice {

// The body of an answer with status 200; errors are those of EtcdCalls, after at most a few
// seconds.
Result<std::string> ask_etcd(const std::string& url, const EtcdCall& call);

}  // namespace sluice
