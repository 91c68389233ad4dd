// InstanceHost: the machine as the gateway's driver sees it. It loads backbones into memory and
// starts and ends function processes; tests have one without processes.
// Owner: the command. Threads: the event loop's. No call blocks: what takes long happens elsewhere,
// in the order of the calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "function/tenant_loop.h"

namespace sluice {

class InstanceHost {
 public:
  virtual ~InstanceHost() = default;

  // Loads the weights of a backbone. FunctionLoops::backbone_loaded() follows.
  virtual void load_backbone(std::int32_t backbone) = 0;
  // Gives its memory back. REQUIRES: it is loaded, and its instances were given to end_instance().
  virtual void unload_backbone(std::int32_t backbone) = 0;
  // `adapter`: Request::adapter, whose content a request holds meanwhile. REQUIRES: the backbone is
  // loaded.
  virtual std::unique_ptr<TenantLoop> start_instance(std::int32_t backbone, std::int32_t adapter,
                                                     const std::string& tenant) = 0;
  // Memory that the machine has left.
  virtual std::int64_t free_bytes() const = 0;
  // Ends its process and destroys it.
  virtual void end_instance(std::unique_ptr<TenantLoop> instance) = 0;
};

}  // namespace sluice
