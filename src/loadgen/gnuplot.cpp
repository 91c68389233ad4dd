#include "loadgen/gnuplot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/file.h"

extern char** environ;

namespace sluice {
namespace {

constexpr const char* kLog = "gnuplot.log";
constexpr int kNotFoundStatus = 127;  // exit status of a child that cannot start the program

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

Error missing(const std::string& program) {
  return unsupported(fmt::format(
      "{} is not installed, so there are no plots; install the Debian package gnuplot-nox "
      "(apt-get install gnuplot-nox) and run again",
      program));
}

// The first line of gnuplot's output.
std::string complaint(const std::string& folder) {
  const auto text = read_file(folder + "/" + kLog, 1 << 20);
  if (!text) return "it said nothing";
  std::string line;
  for (const char c : *text) {
    if (c == '\n' && !line.empty()) break;
    if (c != '\n' && line.size() < 200) line += c;
  }
  return line.empty() ? "it said nothing" : line;
}

}  // namespace

Status run_gnuplot(const std::string& folder, const std::string& script,
                   const std::string& program) {
  FileActions actions;
  posix_spawn_file_actions_addchdir_np(actions.get(), folder.c_str());
  posix_spawn_file_actions_addopen(actions.get(), 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(actions.get(), 1, kLog, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(actions.get(), 1, 2);
  std::string name = program;
  std::string no_settings = "-d";  // ignore the user's settings, which could change the plots
  std::string file = script;
  const std::array<char*, 4> arguments = {name.data(), no_settings.data(), file.data(), nullptr};
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, program.c_str(), actions.get(), nullptr, arguments.data(), environ);
  if (error == ENOENT) return missing(program);
  if (error != 0) {
    return internal_error(fmt::format("cannot run {}: {}", program, std::strerror(error)));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFoundStatus) return missing(program);
  return internal_error(
      fmt::format("{} failed on {}/{}: {}", program, folder, script, complaint(folder)));
}

}  // namespace sluice
