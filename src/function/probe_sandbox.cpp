#include "function/probe_sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "base/file.h"
#include "function/frame_socket.h"
#include "function/frames.h"
#include "function/run_function.h"
#include "sandbox/spawn.h"

namespace sluice {
namespace {

constexpr int kPatienceMs = 10'000;  // between two pieces of the report

// The first frame, which has the layers that the process has built itself.
Result<StateFrame> await_report(FrameSocket& socket) {
  for (;;) {
    ASSIGN_OR_RETURN(const auto body, socket.next());
    if (body) {
      ASSIGN_OR_RETURN(FromFunction message, decode_from_function(*body));
      if (auto* frame = std::get_if<StateFrame>(&message)) return std::move(*frame);
      return invalid_argument("a function process sent outputs before its report");
    }
    pollfd polled{socket.fd(), POLLIN, 0};
    const int ready = poll(&polled, 1, kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return unavailable("a function process does not report its sandbox");
    ASSIGN_OR_RETURN(const bool open, socket.receive());
    if (!open) return unavailable("a function process ended while it built its sandbox");
  }
}

}  // namespace

Result<SandboxReport> probe_sandbox(const std::vector<std::string>& command,
                                    const SandboxOptions& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return unavailable(fmt::format("cannot create a socket: {}", std::strerror(errno)));
  }
  FrameSocket ours{FileDescriptor(ends[0])};
  FileDescriptor theirs(ends[1]);
  const FileDescriptor nothing(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!nothing.valid()) return unavailable("cannot open /dev/null");
  std::vector<int> descriptors(FunctionDescriptors::kCount, nothing.get());
  descriptors[FunctionDescriptors::kSocket] = theirs.get();
  ASSIGN_OR_RETURN(const SandboxedProcess process, spawn_sandboxed(command, descriptors, options));
  theirs.close();  // so that the end of the process is the end of the socket
  ASSIGN_OR_RETURN(StateFrame frame, await_report(ours));
  SandboxReport inside;
  for (LayerState& layer : frame.layers) {
    inside.add(layer.layer, layer.active, std::move(layer.detail));
  }
  SandboxReport report = process.report();
  report.merge(inside);
  return report;
}

}  // namespace sluice
