// /v1/load_lora_adapter and /v1/unload_lora_adapter, with vLLM's fields and answers. A path must
// lie below the operator's folder, with links resolved, and so must the files in it.
// Threads: a worker's; reading an adapter takes milliseconds to seconds, and longer if `stop`
// rests.
#pragma once

#include <string>
#include <string_view>

#include "base/stop_check.h"
#include "front/served_model.h"
#include "server/api_error.h"
#include "server/body_fields.h"

namespace sluice {

// The fields of the call that loads, or of the one that unloads.
void record_adapter_fields(bool load, BodyFields& fields);

// Each returns the text of the answer. `stop`: called after each part of about a millisecond.
// REQUIRES: model.adapters.
ApiResult<std::string> load_adapter(const ServedModel& model, const std::string& folder,
                                    std::string_view body, const StopCheck& stop);
ApiResult<std::string> unload_adapter(const ServedModel& model, std::string_view body);

}  // namespace sluice
