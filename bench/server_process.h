// ServerProcess: `sluice serve`, or another command that listens, as a child, measured from outside
// as its users see it. Ends with its owner. Threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "metrics/histogram.h"

namespace sluice::bench {

class ServerProcess {
 public:
  // Starts `binary serve MODEL ARGUMENTS...` on a free port and waits until it is ready. If it does
  // not become ready, the error has its output.
  static Result<ServerProcess> start(const std::string& binary, const std::string& model,
                                     const std::vector<std::string>& arguments);
  // Starts `binary ARGUMENTS...`, which says `ready`, and before it or with it where it listens.
  static Result<ServerProcess> start_command(const std::string& binary,
                                             const std::vector<std::string>& arguments,
                                             const std::string& ready);
  ~ServerProcess();  // SIGTERM, and waits
  ServerProcess(ServerProcess&& other) noexcept;
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  std::uint16_t port() const { return port_; }
  Result<std::int64_t> resident_bytes() const;
  // User and system time so far, in seconds.
  Result<double> cpu_seconds() const;
  // The exposition of /metrics.
  Result<std::string> metrics() const;

 private:
  ServerProcess(pid_t pid, int log) : pid_(pid), log_(log) {}
  Status await(const std::string& ready);

  pid_t pid_;
  int log_;  // its stderr
  std::uint16_t port_ = 0;
};

// A connected, blocking TCP socket.
Result<int> connect_to(std::uint16_t port);
// Sends all of it.
Status send_all(int socket, const std::string& bytes);

// The counts of the histogram `name` between two expositions.
Result<Histogram> histogram_since(const std::string& before, const std::string& after,
                                  const std::string& name);

}  // namespace sluice::bench
