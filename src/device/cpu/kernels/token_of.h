// The token that a row of the embedding looks up. Values: plain; any thread.
#pragma once

#include <cstdint>

#include "device/cpu/kernels/inline.h"
#include "device/op_params.h"

namespace sluice::kernels {

// Negative where the row names a slot and there are no slots.
SLUICE_INLINE std::int32_t token_of(const EmbedParams& p, std::int64_t row) {
  const std::int32_t id = p.token_ids[row];
  if (id >= 0 || p.last_tokens == nullptr) return id;
  return p.last_tokens[-1 - id];
}

}  // namespace sluice::kernels
