// A function process that does not keep to its turns. It enters the sandbox and reports an engine
// that it does not have. At its first request it starts to compute and never ends: with `keeps`, in
// a turn that it never returns; with `ignores`, without a turn, on two threads.
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/file.h"
#include "function/frame_socket.h"
#include "function/frames.h"
#include "function/run_function.h"
#include "function/turn_gate.h"
#include "sandbox/enter.h"

namespace {

using namespace sluice;

bool send(FrameSocket& socket, const StateFrame& frame) {
  auto bytes = encode_frame(FromFunction(frame));
  if (!bytes) return false;
  socket.queue(*std::move(bytes));
  return socket.send().has_value();
}

// The next frame of the server.
Result<ToFunction> receive(FrameSocket& socket) {
  for (;;) {
    ASSIGN_OR_RETURN(const auto body, socket.next());
    if (body) return decode_to_function(*body);
    pollfd polled{socket.fd(), POLLIN, 0};
    poll(&polled, 1, -1);
    ASSIGN_OR_RETURN(const bool open, socket.receive());
    if (!open) return unavailable("the server has closed the socket");
  }
}

[[noreturn]] void compute_endlessly() {
  std::atomic<std::uint64_t> rounds = 0;
  for (;;) rounds.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

int main(int, char** arguments) {
  const bool keeps = std::string(arguments[1]) == "keeps";
  FrameSocket socket{FileDescriptor(FunctionDescriptors::kSocket)};
  SandboxReport report;
  if (!enter_sandbox({}, report)) return 1;
  StateFrame state;
  for (std::size_t i = 0; i < kLayerCount; ++i) {
    if (const LayerState* layer = report.find(static_cast<Layer>(i))) {
      state.layers.push_back(*layer);
    }
  }
  if (!send(socket, state) || !receive(socket)) return 1;
  state.layers.clear();
  state.state = EngineState::kReady;
  if (!send(socket, state) || !receive(socket)) return 1;
  const SystemClock clock;
  const auto gate =
      TurnGate::open(FunctionDescriptors::kTurnGrant, FunctionDescriptors::kTurnRequest,
                     FunctionDescriptors::kTurnBell, clock);
  if (!gate) return 1;
  if (keeps) (*gate)->enter();
  std::thread second(compute_endlessly);
  compute_endlessly();
}
