// The answers of /tokenize and /detokenize, from body to JSON.
// Threads: a worker's.
#pragma once

#include <string>
#include <string_view>

#include "front/prompt_builder.h"
#include "server/api_error.h"

namespace sluice {

ApiResult<std::string> tokenize_answer(PromptWorker& worker, std::string_view body);
ApiResult<std::string> detokenize_answer(const ServedModel& model, std::string_view body);

// 404 unless that model is served; no name means the only one.
ApiResult<void> check_model(std::string_view asked, std::string_view served);

}  // namespace sluice
