// A short text for people: the sizes of one op of a list, "512 x 2048 by 8192 bf16".
// Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "device/op_list.h"

namespace sluice {

// Where the op says how many of its rows are in use, and the host can read that number, the text
// has it; else the capacity. `host_accessible` as in DeviceTraits.
std::string op_shape(const OpCall& call, bool host_accessible);

}  // namespace sluice
