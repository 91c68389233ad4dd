#include "bench/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/file.h"

namespace sluice::bench {
namespace {

constexpr std::uint64_t kMaxProcFile = 1 << 20;

// In the child: only what is safe between fork and exec.
[[noreturn]] void become_server(std::vector<char*>& arguments, int log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(log, STDERR_FILENO);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  execv(arguments[0], arguments.data());
  const char message[] = "cannot be executed\n";
  static_cast<void>(!write(STDERR_FILENO, message, sizeof(message) - 1));
  _exit(127);
}

// Upper bounds and how many values are at most that; the last one is +Inf.
struct Buckets {
  std::vector<double> bounds;
  std::vector<std::int64_t> counts;
};

Buckets parse_buckets(const std::string& exposition, const std::string& name) {
  Buckets buckets;
  std::istringstream lines(exposition);
  const std::string start = name + "_bucket{";
  for (std::string line; std::getline(lines, line);) {
    const std::size_t bound = line.find("le=\"");
    const std::size_t value = line.rfind(' ');
    if (!line.starts_with(start) || bound == std::string::npos) continue;
    buckets.bounds.push_back(std::strtod(line.c_str() + bound + 4, nullptr));
    buckets.counts.push_back(std::strtoll(line.c_str() + value, nullptr, 10));
  }
  return buckets;
}

}  // namespace

Result<ServerProcess> ServerProcess::start(const std::string& binary, const std::string& model,
                                           const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"serve", model, "--port", "0"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return start_command(binary, all, "\nready: ");
}

Result<ServerProcess> ServerProcess::start_command(const std::string& binary,
                                                   const std::vector<std::string>& arguments,
                                                   const std::string& ready) {
  std::vector<std::string> all = {binary};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : all) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return internal_error("no pipe for the server's messages");
  const pid_t pid = fork();
  if (pid == 0) become_server(pointers, ends[1]);
  close(ends[1]);
  if (pid < 0) return internal_error("the server cannot be forked");
  ServerProcess server(pid, ends[0]);
  RETURN_IF_ERROR(server.await(ready));
  return server;
}

Status ServerProcess::await(const std::string& ready) {
  std::string said;
  char buffer[4096];
  while (said.find(ready) == std::string::npos || !said.ends_with('\n')) {
    const ssize_t count = read(log_, buffer, sizeof(buffer));
    if (count <= 0) return unavailable("the server did not start: " + said);
    said.append(buffer, static_cast<std::size_t>(count));
  }
  const std::string before_port = "listening on http://127.0.0.1:";
  const std::size_t at = said.find(before_port);
  if (at == std::string::npos) return internal_error("the server did not say its port: " + said);
  port_ = static_cast<std::uint16_t>(std::atoi(said.c_str() + at + before_port.size()));
  return {};
}

ServerProcess::ServerProcess(ServerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      log_(std::exchange(other.log_, -1)),
      port_(other.port_) {}

ServerProcess::~ServerProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  close(log_);
}

Result<std::int64_t> ServerProcess::resident_bytes() const {
  ASSIGN_OR_RETURN(const std::string statm,
                   read_file(fmt::format("/proc/{}/statm", pid_), kMaxProcFile));
  std::istringstream fields(statm);
  std::int64_t size = 0;
  std::int64_t resident = 0;
  fields >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

Result<double> ServerProcess::cpu_seconds() const {
  ASSIGN_OR_RETURN(const std::string stat,
                   read_file(fmt::format("/proc/{}/stat", pid_), kMaxProcFile));
  // After the name, which may contain any characters: state, then eleven fields before utime and
  // stime.
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

Result<std::string> ServerProcess::metrics() const {
  ASSIGN_OR_RETURN(const int socket, connect_to(port_));
  auto sent =
      send_all(socket, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  std::string answer;
  char buffer[65536];
  while (sent) {
    const ssize_t count = recv(socket, buffer, sizeof(buffer), 0);
    if (count <= 0) break;
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  close(socket);
  if (!answer.starts_with("HTTP/1.1 200")) return unavailable("/metrics answered: " + answer);
  return answer;
}

Result<int> connect_to(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return unavailable(fmt::format("no socket: {}", std::strerror(errno)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const std::string cause = std::strerror(errno);
    close(socket);
    return unavailable(fmt::format("cannot connect to port {}: {}", port, cause));
  }
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

Status send_all(int socket, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return unavailable(fmt::format("cannot send: {}", std::strerror(errno)));
    done += static_cast<std::size_t>(sent);
  }
  return {};
}

Result<Histogram> histogram_since(const std::string& before, const std::string& after,
                                  const std::string& name) {
  const Buckets old = parse_buckets(before, name);
  const Buckets now = parse_buckets(after, name);
  if (now.bounds.size() < 2 || old.bounds != now.bounds) {
    return not_found(fmt::format("/metrics has no histogram {}", name));
  }
  Histogram histogram(std::vector<double>(now.bounds.begin(), now.bounds.end() - 1));
  std::int64_t below = 0;
  for (std::size_t i = 0; i < now.bounds.size(); ++i) {
    const std::int64_t up_to = now.counts[i] - old.counts[i];
    if (up_to > below) histogram.record(now.bounds[i], up_to - below);
    below = up_to;
  }
  return histogram;
}

}  // namespace sluice::bench
