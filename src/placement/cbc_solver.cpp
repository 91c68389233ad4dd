#include "placement/cbc_solver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file.h"

extern char** environ;

namespace sluice {
namespace {

constexpr std::uint64_t kMaxSolverOutput = std::uint64_t{64} << 20;

// A new directory that is removed with all its files.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> make() {
    std::string path = std::filesystem::temp_directory_path().string() + "/sluice-place-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
      return unavailable(
          fmt::format("cannot make a directory {}: {}; set TMPDIR", path, std::strerror(errno)));
    }
    return TemporaryDirectory(std::move(path));
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept
      : path_(std::exchange(other.path_, std::string())) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Runs a program to its end, its output in a file. The text says why it could not be run.
std::optional<std::string> run_program(std::vector<std::string> command,
                                       const std::string& output) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fmt::format("{}: {}", command[0], std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fmt::format("{}: {}", command[0], std::strerror(errno));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFEXITED(status)) {
    return fmt::format("{} exited with status {}", command[0], WEXITSTATUS(status));
  }
  return fmt::format("{} was ended by signal {}", command[0], WTERMSIG(status));
}

}  // namespace

Result<CbcRun> run_cbc(const std::string& solver, const std::string& program, Duration limit) {
  CbcRun run;
  ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::make());
  RETURN_IF_ERROR(write_file(folder.file("program.lp"), program));
  const double seconds = std::chrono::duration<double>(limit).count();
  if (auto failure = run_program({solver, folder.file("program.lp"), "timeMode", "elapsed", "sec",
                                  fmt::format("{:.3f}", seconds), "ratioGap", "0", "allowableGap",
                                  "0", "solve", "solution", folder.file("solution")},
                                 folder.file("output"))) {
    run.not_run = std::move(*failure);
    return run;
  }
  ASSIGN_OR_RETURN(const std::string output, read_file(folder.file("output"), kMaxSolverOutput));
  auto solution = read_file(folder.file("solution"), kMaxSolverOutput);
  if (!solution) {
    run.not_run = solver + " wrote no solution";
    return run;
  }
  ASSIGN_OR_RETURN(run.solution, parse_cbc_solution(*solution));
  run.lower_bound = parse_lower_bound(output);
  return run;
}

}  // namespace sluice
