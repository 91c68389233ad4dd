// PartyLink: the messages of one party to the coordinator of --lend, one at a time, over HTTP.
// Owner: a session. Threads: the event loop's; leave() after the loop has ended.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/event_loop.h"
#include "http/http_client.h"
#include "lending/lending_message.h"
#include "membership/bearer_token.h"

namespace sluice {

class PartyLink final : private http::ResponseSink {
 public:
  struct Calls {
    std::function<void(const LendAnswer&)> answer;
    std::function<void(const std::string&)> failed;  // with the cause
  };

  // Errors: the coordinator's host is unknown. REQUIRES: the loop outlives the link.
  static Result<std::unique_ptr<PartyLink>> open(const http::BaseUrl& url, const BearerToken& token,
                                                 http::EventLoop& loop, Calls calls);

  // REQUIRES: the message before it has its answer or its failure.
  void send(const LendRequest& message);
  // Sends the last message and blocks for at most two seconds. `url`: for the log.
  void leave(const std::optional<LendRequest>& message, const std::string& url);

 private:
  PartyLink(http::HttpClientOptions options, Calls calls)
      : options_(std::move(options)), calls_(std::move(calls)) {}

  void on_head(const http::ResponseHead&) override {}
  void on_body(std::string_view piece) override;
  void on_end(Status status) override;

  const http::HttpClientOptions options_;
  const Calls calls_;
  std::unique_ptr<http::HttpClient> client_;
  std::string body_;
};

// Unique over the machines of a coordinator: the host's name, the process's id and a word.
std::string lend_party_name(std::string_view word = {});
// Another one for each call and process.
std::string random_lend_word();

}  // namespace sluice
