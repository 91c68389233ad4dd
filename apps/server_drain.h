// How a server ends: it takes no new calls, lets running ones end for at most a given time, then
// ends them, gives their clients a second to read why, and stops the event loop. A call that is cut
// short is saved first where answers are saved. One drain a process; every function runs on the
// loop's thread. While a model loads nothing runs and the load cannot be interrupted:
// exit_while_loading() ends the process at once.

#pragma once

#include <memory>

#include "base/clock.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "server/access_log.h"
#include "server/api_service.h"

namespace sluice {

class ServerDrain {
 public:
  // All outlive it. `timeout`: what running calls are given.
  ServerDrain(http::EventLoop& loop, ApiService& service, Duration timeout)
      : loop_(loop), service_(service), timeout_(timeout) {}

  // `http`, which serves service, outlives the loop's run.
  void begin(http::HttpServer& http);

 private:
  void watch();
  void end();

  http::EventLoop& loop_;
  ApiService& service_;
  const Duration timeout_;
  http::HttpServer* http_ = nullptr;
};

// Closes the access log first, so that its last lines are written.
[[noreturn]] void exit_while_loading(std::unique_ptr<AccessLog>& access_log, int status);

}  // namespace sluice
