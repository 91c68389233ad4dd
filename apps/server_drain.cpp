#include "apps/server_drain.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "apps/service_manager.h"
#include "base/log.h"

namespace sluice {
namespace {

// How often a drain checks whether the last answer has been sent.
constexpr Duration kPoll = std::chrono::milliseconds(10);
// The time that clients have to read why their answers ended.
constexpr Duration kFarewell = std::chrono::seconds(1);

}  // namespace

void ServerDrain::begin(http::HttpServer& http) {
  http_ = &http;
  fmt::print(stderr, "draining: {} requests run; up to {} s (signal again to exit at once)\n",
             service_.active(), std::chrono::duration_cast<std::chrono::seconds>(timeout_).count());
  tell_service_manager(
      fmt::format("STOPPING=1\nSTATUS=draining: {} requests run", service_.active()));
  service_.drain();
  http_->drain();
  loop_.after(timeout_, [this] { end(); });
  watch();
}

void ServerDrain::watch() {
  if (http_->stats().open_connections == 0) {
    loop_.stop();
  } else {
    loop_.after(kPoll, [this] { watch(); });
  }
}

void ServerDrain::end() {
  const std::size_t active = service_.active();
  const std::int32_t saved = service_.save_running();
  log_warning(fmt::format("drain: --drain-timeout is over; ending {} requests{}", active,
                          saved == 0 ? "" : fmt::format(", {} answers are saved", saved)));
  service_.cancel_all();
  loop_.after(kFarewell, [this] {
    http_->close_all();
    loop_.stop();
  });
}

void exit_while_loading(std::unique_ptr<AccessLog>& access_log, int status) {
  access_log.reset();
  _exit(status);
}

}  // namespace sluice
