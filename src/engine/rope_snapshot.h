// The tables of the rotary embedding as a section of a snapshot: a sine and a cosine for each
// position and frequency, which take tens of times longer to compute than to read.
// Functions; the engine's thread.
#pragma once

#include <string>
#include <vector>

#include "model/decoder.h"
#include "snapshot/snapshot.h"

namespace sluice {

struct RopeFacts {
  std::string numerics;  // DeviceTraits::numerics: the C library chooses its functions by CPU
  std::int32_t max_model_len = 0;
};

// Decoder::rope_tables(), from the snapshot where it has them; else computed and offered to it.
std::vector<float> make_rope_tables(const Decoder& decoder, const RopeFacts& facts,
                                    Snapshot& snapshot);

}  // namespace sluice
