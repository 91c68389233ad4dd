#include "http/unix_path.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::http {
namespace {

std::error_code last_error() { return {errno, std::system_category()}; }

Error cannot_listen(const std::string& path, std::string_view cause) {
  return unavailable(fmt::format("cannot listen on unix:{}: {}", path, cause));
}

// The result of connect() to the socket at `path`: 0 or an errno.
int try_to_connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const bool connected =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = connected ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace

Status check_socket_path(const std::string& path) {
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty() || path.find('\0') != std::string::npos) {
    return invalid_argument("the path of the Unix-domain socket is empty; write unix:PATH");
  }
  if (path.size() > kLongest) {
    return invalid_argument(fmt::format(
        "unix:{}: the path has {} bytes, and a Unix-domain socket's has at most {}; use a shorter "
        "one, such as /run/sluice.sock",
        path, path.size(), kLongest));
  }
  return {};
}

Status remove_stale_socket(const std::string& path) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return cannot_listen(path, last_error().message());
  }
  if (!S_ISSOCK(found.st_mode)) {
    return cannot_listen(path,
                         "the file exists and is not a socket; remove it or use another path");
  }
  // Any other result than a refusal means a process, perhaps a busy one.
  if (try_to_connect(path) != ECONNREFUSED) return cannot_listen(path, "another process uses it");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return cannot_listen(path, last_error().message());
  }
  return {};
}

std::error_code restrict_to_user(int socket) {
  return ::fchmod(socket, S_IRUSR | S_IWUSR) == 0 ? std::error_code() : last_error();
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat made = {};
  if (::lstat(path_.c_str(), &made) != 0) return;
  device_ = made.st_dev;
  inode_ = made.st_ino;
}

SocketFile::~SocketFile() {
  struct stat found = {};
  if (::lstat(path_.c_str(), &found) != 0) return;
  if (found.st_dev == device_ && found.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace sluice::http
