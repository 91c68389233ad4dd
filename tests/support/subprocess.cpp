#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>

namespace sluice::test {
namespace {

struct Pipe {
  Pipe() {
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  void close_end(std::size_t end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
  std::array<int, 2> ends{-1, -1};  // read, write
};

[[noreturn]] void become(const std::vector<std::string>& command, const Pipe& in, const Pipe& out,
                         const Pipe& err) {
  dup2(in.ends[0], STDIN_FILENO);
  dup2(out.ends[1], STDOUT_FILENO);
  dup2(err.ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// One end of a pipe that is read to its end.
void read_some(Pipe& pipe, std::string& text) {
  char buffer[65536];
  const ssize_t count = read(pipe.ends[0], buffer, sizeof(buffer));
  if (count > 0) {
    text.append(buffer, static_cast<std::size_t>(count));
  } else {
    pipe.close_end(0);
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& command, const ProcessOptions& options) {
  signal(SIGPIPE, SIG_IGN);  // a program need not read its input
  Pipe in;
  Pipe out;
  Pipe err;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) become(command, in, out, err);
  in.close_end(0);
  out.close_end(1);
  err.close_end(1);

  ProcessResult result;
  std::size_t written = 0;
  bool interrupted = false;
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    if (in.ends[1] >= 0 && written == options.input.size()) in.close_end(1);
    std::array<pollfd, 3> polled = {
        {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}, {in.ends[1], POLLOUT, 0}}};
    poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) read_some(out, result.out);
    if (polled[1].revents != 0) read_some(err, result.err);
    if (polled[2].revents != 0) {
      const ssize_t count =
          write(in.ends[1], options.input.data() + written, options.input.size() - written);
      if (count < 0) in.close_end(1);
      if (count > 0) written += static_cast<std::size_t>(count);
    }
    if (options.interrupt_at_first_output && !interrupted && !result.out.empty()) {
      interrupted = true;
      kill(child, SIGINT);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace sluice::test
