// A function process that has no engine, for programs of tests that misbehave as one: the frames
// that cross its socket, and the sandbox and the start that the server expects.
#pragma once

#include "base/result.h"
#include "function/frame_socket.h"
#include "function/frames.h"

namespace sluice::test {

// Sends a message whole; false if the server has gone or it is no frame.
bool send(FrameSocket& socket, const FromFunction& message);
// Waits for the server's next message.
Result<ToFunction> receive(FrameSocket& socket);
// Enters the sandbox, reports its layers, takes the server's first message and says "ready".
bool serve_no_engine(FrameSocket& socket);

}  // namespace sluice::test
