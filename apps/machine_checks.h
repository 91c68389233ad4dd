// The checks of `sluice doctor`: each tests one property of this machine. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/machine_limits.h"
#include "device/cpu/cpu_isa.h"
#include "device/device.h"

namespace sluice {

enum class CheckLevel : std::uint8_t { kOk, kNote, kWarning, kFailure };

struct MachineCheck {
  std::string name;
  CheckLevel level = CheckLevel::kOk;
  std::string found;
  std::string advice;  // empty when there is nothing to do
};

// "ok", "note", "warning", "failure".
const char* check_level_name(CheckLevel level);

// A second of measuring is part of it.
std::vector<MachineCheck> check_machine();

// The part of it that judges measured limits: a warning where the kernels of another instruction
// set than `chosen` have a faster unit for products in BF16.
MachineCheck judge_limits(const MachineLimits& limits, CpuIsa chosen);

// Likewise for the system's rule of large pages in shared memory.
MachineCheck judge_shared_pages(const std::string& rule);

// Adds to the check of limits whether a thread for each CPU would be faster than one for each core,
// where cores have several CPUs: a note where it reads faster and computes as fast.
void judge_threads(const MachineLimits& cores, const MachineLimits& cpus, CpuIsa chosen,
                   MachineCheck& check);

}  // namespace sluice
