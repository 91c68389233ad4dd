// The endpoints /tokenize, /detokenize and /v1/messages/count_tokens: from body to JSON.
// Threads: a worker's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/stop_check.h"
#include "front/prompt_builder.h"
#include "server/api_error.h"
#include "server/ignored_fields.h"

namespace sluice {

struct TokenizeReply {
  std::string json;
  std::vector<IgnoredField> ignored_fields;
};

// Returns the error of `stop` as soon as it asks to stop.
ApiResult<TokenizeReply> tokenize_answer(PromptWorker& worker, std::string_view body,
                                         UnknownFields unknown, const StopCheck& stop = {});
ApiResult<TokenizeReply> count_answer(PromptWorker& worker, std::string_view body,
                                      UnknownFields unknown, const StopCheck& stop = {});
ApiResult<TokenizeReply> detokenize_answer(const ServedModel& model, std::string_view body,
                                           UnknownFields unknown);

// 404 unless `asked` is the model that is served.

}  // namespace sluice
