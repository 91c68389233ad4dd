#include "placement/place_models.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "base/file.h"
#include "placement/greedy_placer.h"
#include "placement/placer_program.h"

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

struct SolverRun {
  SolverAnswer answer;
  std::optional<double> bound_mb;
  std::string not_run;  // why; empty: it ran
};

Result<SolverRun> solve(const Cluster& cluster, const PlacerOptions& options) {
  SolverRun run;
  if (options.solver.empty()) {
    run.not_run = "it was not asked for";
    return run;
  }
  ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::make());
  RETURN_IF_ERROR(write_file(folder.file("cluster.lp"), placer_program(cluster)));
  const double seconds = std::chrono::duration<double>(options.time_limit).count();
  if (auto failure =
          run_program({options.solver, folder.file("cluster.lp"), "timeMode", "elapsed", "sec",
                       fmt::format("{:.3f}", seconds), "ratioGap", "0", "allowableGap", "0",
                       "solve", "solution", folder.file("solution")},
                      folder.file("output"))) {
    run.not_run = std::move(*failure);
    return run;
  }
  ASSIGN_OR_RETURN(const std::string output, read_file(folder.file("output"), kMaxSolverOutput));
  auto solution = read_file(folder.file("solution"), kMaxSolverOutput);
  if (!solution) {
    run.not_run = options.solver + " wrote no solution";
    return run;
  }
  ASSIGN_OR_RETURN(run.answer, parse_solution(cluster, *solution));
  run.bound_mb = parse_lower_bound(output);
  return run;
}

}  // namespace

double PlacerResult::gap() const {
  const auto objective = static_cast<double>(objective_mb);
  const double size = std::max(std::abs(objective), std::abs(bound_mb));
  return size > 0 ? std::max(0.0, objective - bound_mb) / size : 0;
}

Result<PlacerResult> place_models(const Cluster& cluster, const PlacerOptions& options,
                                  const Clock& clock) {
  const TimePoint start = clock.now();
  auto greedy = place_greedily(cluster);
  // A placement on the means cannot be improved: the solver has nothing to do.
  const bool done = greedy && objective_mb(cluster, *greedy) == mean_bound_mb(cluster);
  SolverRun run;
  if (!done) {
    ASSIGN_OR_RETURN(run, solve(cluster, options));
  }
  PlacerResult result;
  result.without_cbc = run.not_run;
  result.bound_mb = static_cast<double>(mean_bound_mb(cluster));
  if (run.bound_mb) result.bound_mb = std::max(result.bound_mb, *run.bound_mb);
  if (run.answer.infeasible) {
    return resource_exhausted(
        "the tensor-parallel groups do not fit the servers in any way; lower a count or add "
        "servers");
  }
  if (!greedy && !run.answer.placement) return std::move(greedy).error();
  if (run.answer.placement) {
    const std::int64_t value = objective_mb(cluster, *run.answer.placement);
    if (run.answer.optimal) result.bound_mb = static_cast<double>(value);
    result.from_solver = !greedy || value < objective_mb(cluster, *greedy);
  }
  result.placement = result.from_solver ? *std::move(run.answer.placement) : *std::move(greedy);
  result.objective_mb = objective_mb(cluster, result.placement);
  // Objectives are multiples of a number, which the solver's bound need not be.
  const auto step = static_cast<double>(std::gcd(spare_unit_mb(cluster), cluster.gpu_memory_mb));
  result.bound_mb = std::min(step * std::ceil(result.bound_mb / step - 1e-6),
                             static_cast<double>(result.objective_mb));
  result.optimal = result.bound_mb == static_cast<double>(result.objective_mb);
  result.seconds = std::chrono::duration<double>(clock.now() - start).count();
  return result;
}

}  // namespace sluice
