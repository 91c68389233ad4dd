// The checks of `sluice doctor`: each tests one property of this machine. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

std::vector<MachineCheck> check_machine();

}  // namespace sluice
