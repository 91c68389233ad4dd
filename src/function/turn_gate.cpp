#include "function/turn_gate.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "base/shared_futex.h"

namespace sluice {
namespace {

// stop() may come between a look at its flag and the sleep.
constexpr std::chrono::milliseconds kLongestSleep{100};

}  // namespace

Result<std::unique_ptr<TurnGate>> TurnGate::open(int grant, int request, int bell,
                                                 const Clock& clock) {
  ASSIGN_OR_RETURN(MappedPage<const TurnGrant> granted, map_grant(grant));
  ASSIGN_OR_RETURN(MappedPage<TurnRequest> requested, map_request(request));
  return std::unique_ptr<TurnGate>(
      new TurnGate(std::move(granted), std::move(requested), bell, clock));
}

void TurnGate::tell(bool wants) {
  request_->word.store(turn_word(returned_, wants), std::memory_order_release);
  asked_ = wants;
  const std::uint64_t one = 1;
  static_cast<void>(write(bell_, &one, sizeof(one)));
}

void TurnGate::enter() {
  if (holds_) return;
  if (!asked_) tell(true);
  const std::uint32_t wanted = turn_word(returned_ + 1, true);
  for (;;) {
    const std::uint32_t turn = grant_->turn.load(std::memory_order_acquire);
    holds_ = turn == wanted;
    if (holds_ || stopping_.load()) return;
    shared_futex_wait(grant_->turn, turn, kLongestSleep);
  }
}

// A step that begins before the turn's end may go on after it.
Duration TurnGate::longest_step() const {
  const std::int64_t until = grant_->return_after.load(std::memory_order_relaxed);
  return until == TurnGrant::kNever ? kLongestStep : kSharedStep;
}

void TurnGate::leave(bool more) {
  if (!holds_) return;
  const std::int64_t until = grant_->return_after.load(std::memory_order_relaxed);
  const bool keeps = until == TurnGrant::kNever || clock_.now().since_start.count() < until;
  if (more && keeps) return;
  holds_ = false;
  ++returned_;
  tell(more);
}

void TurnGate::stop() {
  stopping_.store(true);
  shared_futex_wake(grant_->turn);
}

}  // namespace sluice
