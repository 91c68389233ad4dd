// StartupLoads: loads the backbones of a machine one after the other when its command starts. A
// backbone that does not fit into memory beside those before it makes all of these leave, and is
// tried again alone.
// Owner: GatewayHost, AgentMachine. Threads: one at a time. Errors: those of the last try.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"

namespace sluice {

class StartupLoads {
 public:
  // Calls `load`, a second time if it had no room (kResourceExhausted) and others have left.
  // `unload` makes the backbone leave again; it is called once at most, and only after a success.
  // REQUIRES: names differ, and what `unload` uses lives until the last load().
  Status load(const std::string& name, const std::function<Status()>& load,
              std::function<void()> unload);
  // Whether load() has loaded it, and no later one has made it leave.
  bool is_loaded(const std::string& name) const { return loaded_.contains(name); }

 private:
  std::map<std::string, std::function<void()>> loaded_;  // unload of each
};

}  // namespace sluice
