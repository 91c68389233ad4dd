// The endpoints /tokenize and /detokenize: from body to JSON.
// Threads: a worker's.
#pragma once

#include <string>
#include <string_view>

#include "base/stop_check.h"
#include "front/prompt_builder.h"
#include "server/api_error.h"

namespace sluice {

// Ends with the error of `stop` when that says so.
ApiResult<std::string> tokenize_answer(PromptWorker& worker, std::string_view body,
                                       const StopCheck& stop = {});
ApiResult<std::string> detokenize_answer(const ServedModel& model, std::string_view body);

// 404 unless `asked` is the model that is served.
ApiResult<void> check_model(std::string_view asked, std::string_view served);

}  // namespace sluice
