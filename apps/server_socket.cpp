#include "apps/server_socket.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "http/open_files.h"

namespace sluice {

Result<std::unique_ptr<http::HttpServer>> open_server(const ServeArguments& arguments,
                                                      const ServeSettings& settings,
                                                      http::EventLoop& loop, http::Handler& handler,
                                                      const Clock& clock, http::TlsContext* tls) {
  if (arguments.uds.empty()) {
    return http::HttpServer::listen(loop, arguments.host, settings.port, settings.limits, handler,
                                    clock, tls);
  }
  auto server = http::HttpServer::listen_unix(loop, arguments.uds, settings.limits, handler, clock);
  if (!server) return with_context("--uds", std::move(server).error());
  return server;
}

Result<std::unique_ptr<http::TlsContext>> load_certificate(const ServeArguments& arguments) {
  if (arguments.ssl_certfile.empty()) return std::unique_ptr<http::TlsContext>();
  return http::TlsContext::load(arguments.ssl_certfile, arguments.ssl_keyfile.empty()
                                                            ? arguments.ssl_certfile
                                                            : arguments.ssl_keyfile);
}

std::string server_url(const ServeArguments& arguments, const http::HttpServer& server) {
  if (!arguments.uds.empty()) return "unix:" + arguments.uds;
  const bool is_v6 = arguments.host.find(':') != std::string::npos;
  const std::string host = is_v6 ? fmt::format("[{}]", arguments.host) : arguments.host;
  return fmt::format("{}://{}:{}", arguments.ssl_certfile.empty() ? "http" : "https", host,
                     server.port());
}

// Each connection is an open file; many systems allow 1,024 unless more is asked for.
void allow_connections(std::int32_t connections) {
  constexpr std::int64_t kOthers = 512;  // the log, connections that are being turned away, ...
  const std::int64_t files = http::raise_open_files_limit();
  if (files >= connections + kOthers) return;
  log_warning(fmt::format(
      "this process may open {} files, too few for {} connections: further connections will wait "
      "unanswered; raise the limit (ulimit -n) or lower --max-connections",
      files, connections));
}

}  // namespace sluice
