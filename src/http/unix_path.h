// The file of a Unix-domain socket: checks its path, removes a stale file of an earlier process,
// and removes the file at the end.
// Errors name the path and the cause. Threads: the event loop's.
#pragma once

#include <sys/types.h>

#include <string>
#include <system_error>

#include "base/result.h"

namespace sluice::http {

// kInvalidArgument for a path that is empty or longer than the system allows.
Status check_socket_path(const std::string& path);

// Removes a socket at `path` that no process listens on. An error if a process listens or the file
// is not a socket. Does nothing if there is no file.
Status remove_stale_socket(const std::string& path);

// Call before bind(): makes the socket file accessible to this user only.
std::error_code restrict_to_user(int socket);

// Removes the file at its end, unless another process has replaced it.
class SocketFile {
 public:
  // REQUIRES: a socket was just bound to `path`.
  explicit SocketFile(std::string path);
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

 private:
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace sluice::http
