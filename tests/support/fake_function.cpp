#include "tests/support/fake_function.h"

#include <poll.h>

#include <utility>

#include "sandbox/enter.h"

namespace sluice::test {

bool send(FrameSocket& socket, const FromFunction& message) {
  auto bytes = encode_frame(message);
  if (!bytes) return false;
  socket.queue(*std::move(bytes));
  while (socket.has_queued()) {
    if (!socket.send()) return false;
  }
  return true;
}

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

bool serve_no_engine(FrameSocket& socket) {
  SandboxReport report;
  if (!enter_sandbox({}, report)) return false;
  StateFrame state;
  state.layers = report.layers();
  if (!send(socket, state) || !receive(socket)) return false;
  state.layers.clear();
  state.state = EngineState::kReady;
  return send(socket, state);
}

}  // namespace sluice::test
