// Refuses fields of config.json that change the computation and that no family here implements,
// unless they have their neutral value. The error names the field. Pure; any thread.
#pragma once

#include "base/result.h"
#include "model/json_fields.h"

namespace sluice {

Status refuse_unsupported_fields(const JsonFields& config);

}  // namespace sluice
