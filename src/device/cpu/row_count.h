// The number of rows of a step that are in use, read when an op runs.
// Values: plain; any thread.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "device/op_params.h"

namespace sluice {

// `rows.capacity` if no count is given.
inline std::int32_t rows_in_use(const RowCount& rows) {
  if (rows.value == nullptr) return rows.capacity;
  CHECK(*rows.value >= 0 && *rows.value <= rows.capacity);
  return *rows.value;
}

}  // namespace sluice
