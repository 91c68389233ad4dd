// TenantLoop: an EngineLoop that computes for one tenant, which may be named after its start.
// Owner, threads: as EngineLoop says.
#pragma once

#include <string>

#include "server/engine_loop.h"

namespace sluice {

class TenantLoop : public EngineLoop {
 public:
  // Names the tenant of all later requests. Before the first call it is the one without a name.
  virtual void set_tenant(const std::string& tenant) = 0;
};

}  // namespace sluice
