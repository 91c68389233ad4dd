// A function process that does not keep to its turns. It enters the sandbox and reports an engine
// that it does not have. At its first request it starts to compute and never ends: with `keeps`, in
// a turn that it never returns, on the one thread that its turns are for; with `ignores`, without a
// turn, on two threads.
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "function/frame_socket.h"
#include "function/run_function.h"
#include "function/turn_gate.h"
#include "tests/support/fake_function.h"

namespace {

using namespace sluice;

[[noreturn]] void compute_endlessly() {
  std::atomic<std::uint64_t> rounds = 0;
  for (;;) rounds.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

int main(int, char** arguments) {
  const bool keeps = std::string(arguments[1]) == "keeps";
  FrameSocket socket{FileDescriptor(FunctionDescriptors::kSocket)};
  if (!test::serve_no_engine(socket) || !test::receive(socket)) return 1;
  const SystemClock clock;
  const auto gate =
      TurnGate::open(FunctionDescriptors::kTurnGrant, FunctionDescriptors::kTurnRequest,
                     FunctionDescriptors::kTurnBell, clock);
  if (!gate) return 1;
  if (keeps) {
    (*gate)->enter();
    compute_endlessly();
  }
  std::thread second(compute_endlessly);
  compute_endlessly();
}
