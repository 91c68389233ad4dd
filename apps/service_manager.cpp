#include "apps/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace sluice {
namespace {

Status send(std::string_view lines) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') return {};
  const std::string_view name = path;
  sockaddr_un address{};
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof(address.sun_path)) {
    return invalid_argument(
        fmt::format("NOTIFY_SOCKET is '{}': not an absolute path or an abstract name", name));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());

  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ssize_t sent = -1;
  if (socket >= 0) {
    // Does not wait for a manager that reads nothing.
    sent = ::sendto(socket, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                    reinterpret_cast<const sockaddr*>(&address), length);
  }
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (sent == static_cast<ssize_t>(lines.size())) return {};
  return unavailable(
      fmt::format("cannot write to NOTIFY_SOCKET '{}': {}", name, std::strerror(error)));
}

}  // namespace

void tell_service_manager(std::string_view lines) {
  if (const Status sent = send(lines); !sent) log_warning(sent.error().message);
}

}  // namespace sluice
