// Listening, as the commands that serve HTTP share it: opening the socket that the options name,
// its URL, and enough open files.
// Functions; the event loop's thread, before it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/serve.h"
#include "apps/serve_settings.h"
#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "http/http_server.h"
#include "http/tls.h"

namespace sluice {

// `tls`: null = none.
Result<std::unique_ptr<http::HttpServer>> open_server(const ServeArguments& arguments,
                                                      const ServeSettings& settings,
                                                      http::EventLoop& loop, http::Handler& handler,
                                                      const Clock& clock, http::TlsContext* tls);

// Null without --ssl-certfile.
Result<std::unique_ptr<http::TlsContext>> load_certificate(const ServeArguments& arguments);

std::string server_url(const ServeArguments& arguments, const http::HttpServer& server);

// Raises the limit of open files; a warning if it stays too low.
void allow_connections(std::int32_t connections);

}  // namespace sluice
