// fetch(): sends one request and waits for its whole answer, for use before and after a run.
// It has an event loop of its own and blocks the calling thread.
#pragma once

#include <string>

#include "base/result.h"
#include "http/http_client.h"

namespace sluice::http {

struct Answer {
  int status = 0;
  std::string body;
};

// kUnavailable or kDeadlineExceeded when there is no answer; an answer with any status is a result.
// A body of more than 64 MiB is refused.
Result<Answer> fetch(const HttpClientOptions& options, const ClientRequest& request);

}  // namespace sluice::http
