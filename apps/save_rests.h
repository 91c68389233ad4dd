// How long the saves of KV tiers rest between each other (offload/save_pace.h). The steps of a CPU
// device need the same cores, so the saves of each tier take at most a ninth of one. That is
// several times what such a device computes. Pure.
#pragma once

#include "device/device.h"

namespace sluice {

inline int save_rests_beside(const Device& device) {
  return device.traits().host_accessible ? 8 : 0;
}

}  // namespace sluice
