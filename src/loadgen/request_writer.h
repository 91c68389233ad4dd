// RequestWriter: turns a workload's request into an HTTP request.
// Owner: the run. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/http_client.h"
#include "loadgen/prompt_maker.h"
#include "workload/workload.h"

namespace sluice {

enum class LoadEndpoint : std::uint8_t { kCompletions, kChat };

struct RequestForm {
  LoadEndpoint endpoint = LoadEndpoint::kCompletions;
  std::string model;
  double temperature = 0;
  bool ignore_eos = false;
};

// "/v1/completions", "/v1/chat/completions".
std::string_view endpoint_path(LoadEndpoint endpoint);

class RequestWriter {
 public:
  RequestWriter(RequestForm form, PromptMaker prompts);

  // The `number`-th request of the run, streamed, with usage at its end.
  http::ClientRequest write(const WorkloadRequest& request, std::int64_t number);

 private:
  RequestForm form_;
  PromptMaker prompts_;
  std::vector<TokenId> ids_;
  std::string text_;
};

}  // namespace sluice
