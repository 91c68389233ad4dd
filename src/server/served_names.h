// The names that clients may give as `model`: the base model's and those of its adapters.
// Threads: any.
#pragma once

#include <string_view>
#include <vector>

#include "adapter/adapter_store.h"
#include "front/served_model.h"
#include "server/api_error.h"
#include "server/response_json.h"

namespace sluice {

// The adapter of a name; null for the base model. 404 for a name that is neither.
ApiResult<SharedAdapter> find_served(const ServedModel& model, std::string_view name);

// The 404 of a name that is not served.
ApiError no_such_model(const ServedModel& model, std::string_view name);

// Cards for /v1/models: the base model first, then its adapters by name.
std::vector<ModelCard> served_cards(const ServedModel& model);

}  // namespace sluice
