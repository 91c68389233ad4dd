// The rows of a step in use, read when an op runs.
// Values: plain; any thread.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "device/op_params.h"

namespace sluice {

// All of the capacity where no count is given.
inline std::int32_t rows_in_use(const RowCount& rows) {
  if (rows.value == nullptr) return rows.capacity;
  CHECK(*rows.value >= 0 && *rows.value <= rows.capacity);
  return *rows.value;
}

}  // namespace sluice
