// Reads the rotary embedding from config.json, in the form of transformers 4 (rope_theta,
// rope_scaling with type or rope_type) or 5 (rope_parameters). Pure; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/json_fields.h"
#include "model/model_config.h"

namespace sluice {

Result<RopeConfig> read_rope(const JsonFields& config, std::int32_t head_dim,
                             std::int32_t max_position_embeddings);

}  // namespace sluice
