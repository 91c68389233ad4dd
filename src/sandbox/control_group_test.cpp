// Control groups of a server that was killed. Each server is a process of its own, because a server
// cleans a place until nothing is left there. Without writable control groups the case is skipped.
#include "sandbox/control_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "base/file.h"

namespace sluice {
namespace {

constexpr std::size_t kMessageBytes = 512;

// A process that does nothing until it is killed.
pid_t start_sleeper() {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  return child;
}

void end_child(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// Starts a process with a control group, as each process of a server, and ends it.
void run_limited_process() {
  const pid_t child = start_sleeper();
  SandboxReport report;
  const ControlGroup group(child, {}, report);
  end_child(child);
}

// A server with one limited process. It writes the process's number and the folder of its memory
// limit, or nothing if it cannot be limited, and waits.
[[noreturn]] void run_server_to_be_killed(int said) {
  const pid_t child = start_sleeper();
  SandboxReport report;
  const ControlGroup group(child, {}, report);
  std::string text;
  if (report.active(Layer::kMemoryLimit)) {
    text = fmt::format("{} {}", child, report.find(Layer::kMemoryLimit)->detail);
  } else {
    end_child(child);
  }
  text.resize(kMessageBytes);
  if (write(said, text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(1);
  while (true) pause();
}

struct Leftover {
  pid_t process = -1;
  std::string folder;
};

// Kills a server, and leaves its process alive. An empty folder: nothing can be limited here.
Leftover leave_a_process() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const FileDescriptor reader(ends[0]);
  const FileDescriptor writer(ends[1]);
  const pid_t server = fork();
  if (server == 0) run_server_to_be_killed(writer.get());
  char text[kMessageBytes] = {};
  EXPECT_EQ(read(reader.get(), text, sizeof(text)), static_cast<ssize_t>(sizeof(text)));
  end_child(server);
  if (text[0] == '\0') return {};
  const std::string said = text;
  const std::size_t space = said.find(' ');
  return {std::stoi(said.substr(0, space)), said.substr(space + 1)};
}

TEST(ControlGroup, RemovesWhatAKilledServerLeftAlsoIfItsProcessEndsLater) {
  const Leftover left = leave_a_process();
  if (left.folder.empty()) GTEST_SKIP() << "no writable control groups here";
  ASSERT_TRUE(std::filesystem::exists(left.folder));
  const pid_t server = fork();
  if (server == 0) {
    run_limited_process();
    // Its process lives, so it has its group.
    if (!std::filesystem::exists(left.folder)) _exit(1);
    kill(left.process, SIGKILL);
    // It is no child of this server, so only its group says when it has ended.
    for (int i = 0; i < 500 && std::filesystem::exists(left.folder); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      run_limited_process();
    }
    _exit(std::filesystem::exists(left.folder) ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(server, &status, 0), server);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: removed too early; 2: never";
  if (HasFailure()) kill(left.process, SIGKILL);
}

}  // namespace
}  // namespace sluice
