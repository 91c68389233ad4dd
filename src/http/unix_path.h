// The file of a Unix-domain socket: which paths can be one, what an earlier process left there, and
// its removal.
// Errors name the path and the cause. Threads: the event loop's.
#pragma once

#include <sys/types.h>

#include <string>
#include <system_error>

#include "base/result.h"

namespace sluice::http {

// kInvalidArgument for a path that is empty or longer than the system allows.
Status check_socket_path(const std::string& path);

// Removes a socket at `path` that no process listens on. An error when a process does, or when the
// file is no socket. Nothing there: does nothing.
Status remove_stale_socket(const std::string& path);

// Before bind(): the file that it makes is for this user alone.
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
