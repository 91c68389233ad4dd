// Rotary embeddings, computed as transformers does (float32 where it uses float32), so that the
// tables agree with it to the last place or two. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_config.h"

namespace sluice {

// rotary_dim / 2 inverse frequencies.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope);

// Fills [num_positions, rotary_dim] for positions first_position and on: per row the cosines of
// the rotary_dim / 2 frequencies, then their sines, both times the attention scaling; as
// RopeWriteKvParams::cos_sin reads it. REQUIRES: table.size() == num_positions * rotary_dim.
void fill_rope_table(const RopeConfig& rope, std::int32_t first_position,
                     std::int32_t num_positions, std::span<float> table);

}  // namespace sluice
