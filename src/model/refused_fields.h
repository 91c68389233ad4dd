// Fields of config.json that change what a model computes and that no family here implements: any
// of them set to more than its neutral value is refused by name. Pure; any thread.
#pragma once

#include "base/result.h"
#include "model/json_fields.h"

namespace sluice {

Status refuse_unsupported_fields(const JsonFields& config);

}  // namespace sluice
