// Runs a program to its end, for tests. Returns its exit code, stdout and stderr.
// Throws std::runtime_error when it cannot be started. Threads: any.
#pragma once

#include <string>
#include <vector>

namespace sluice::test {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

struct ProcessOptions {
  std::string input;  // on stdin
  // Sends SIGINT after the first output on stdout.
  bool interrupt_at_first_output = false;
};

ProcessResult run_process(const std::vector<std::string>& command,
                          const ProcessOptions& options = {});

}  // namespace sluice::test
