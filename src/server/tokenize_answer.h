// The endpoints /tokenize, /detokenize and /v1/messages/count_tokens: from body to JSON.
// Threads: a worker's.
#pragma once

#include <functional>
#include <optional>
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

// The worker of the model that a call names; absent: the call names none.
using FindWorker = std::function<ApiResult<PromptWorker*>(std::optional<std::string_view> name)>;

// Return the error of `find`, and that of `stop` as soon as it asks to stop.
ApiResult<TokenizeReply> tokenize_answer(const FindWorker& find, std::string_view body,
                                         UnknownFields unknown, const StopCheck& stop = {});
ApiResult<TokenizeReply> count_answer(const FindWorker& find, std::string_view body,
                                      UnknownFields unknown, const StopCheck& stop = {});
ApiResult<TokenizeReply> detokenize_answer(const FindWorker& find, std::string_view body,
                                           UnknownFields unknown);

}  // namespace sluice
