#include "lending/lending_agent.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {

LendingAgent::LendingAgent(LendingAgentOptions options)
    : options_(std::move(options)),
      messages_(options_.party, options_.key_prefix),
      policy_(options_.least, options_.most) {
  CHECK(options_.least >= 0 && options_.least <= options_.most);
}

std::int64_t LendingAgent::borrowed() const {
  std::int64_t sum = 0;
  for (const auto& [lease, loan] : loans_) sum += loan.bytes;
  return sum;
}

std::vector<LoanView> LendingAgent::loans() const {
  std::vector<LoanView> views;
  if (state_ != LendingState::kJoined) return views;
  for (const auto& [lease, loan] : loans_) {
    views.push_back({lease, {}, loan.bytes, loan.keep, loan.socket});
  }
  return views;
}

std::int64_t LendingAgent::kept() const {
  std::int64_t sum = 0;
  for (const auto& [lease, loan] : loans_) sum += loan.keep;
  return sum;
}

std::int64_t LendingAgent::limit() const {
  if (state_ != LendingState::kJoined) return options_.least;
  return std::min(options_.least + kept(), options_.most);
}

void LendingAgent::update(TimePoint now, const LendingLoad& load) {
  load_ = load;
  wish_ = policy_.decide(now, load);
  if (state_ == LendingState::kJoined && now - *answered_ >= expiry_ / 2) {
    state_ = LendingState::kAlone;
    // A message from before is of no use to a coordinator that lets the party join anew.
    epoch_ = 0;
  }
  // Memory that is free again is not the party's any more.
  if (state_ != LendingState::kJoined && std::max(load.backed, load.used) <= options_.least) {
    loans_.clear();
  }
}

LendRequest LendingAgent::join() {
  LendRequest message = messages_.begin(LendVerb::kJoin, 0);
  message.device = options_.device;
  message.kind = options_.kind;
  message.held = held();
  return message;
}

std::vector<LeaseBytes> LendingAgent::held() const {
  std::vector<LeaseBytes> held;
  for (const auto& [lease, loan] : loans_) {
    if (loan.bytes > 0) held.push_back({lease, loan.bytes});
  }
  return held;
}

// Gives back what is no longer in use. It is counted as given back from now on, whether or not the
// message arrives: a party may hold less than the coordinator believes, never more.
std::optional<LendRequest> LendingAgent::respond() {
  if (kept() == borrowed()) return std::nullopt;
  if (std::max(load_.backed, load_.used) > limit()) return std::nullopt;
  for (auto& [lease, loan] : loans_) {
    if (loan.keep == loan.bytes) continue;
    LendRequest message = messages_.begin(LendVerb::kRespond, epoch_);
    message.lease = lease;
    message.bytes = loan.bytes - loan.keep;
    loan.bytes = loan.keep;
    return message;
  }
  return std::nullopt;
}

std::optional<LendRequest> LendingAgent::next(TimePoint now) {
  if (state_ == LendingState::kFenced || (in_flight_ && !repeat_)) return std::nullopt;
  if (repeat_ && now < next_heartbeat_) return std::nullopt;
  // A join that presents memory which the process no longer uses must not arrive: after a start the
  // coordinator would believe it.
  const bool stale = in_flight_ && (in_flight_->verb == LendVerb::kJoin ? in_flight_->held != held()
                                                                        : epoch_ == 0);
  if (repeat_ && !stale) {
    repeat_ = false;
    sent_ = now;
    return in_flight_;
  }
  repeat_ = false;
  in_flight_.reset();
  if (epoch_ == 0) {
    if (now < next_heartbeat_) return std::nullopt;
    in_flight_ = join();
  } else if (auto back = respond()) {
    in_flight_ = std::move(back);
  } else if (wish_.want > 0 && available_ > 0) {
    in_flight_ = messages_.begin(LendVerb::kAllocate, epoch_);
    in_flight_->bytes = wish_.want;
  } else if (now >= next_heartbeat_ || (wish_.want > 0) != (told_.want > 0)) {
    in_flight_ = messages_.begin(LendVerb::kHeartbeat, epoch_);
    in_flight_->want = wish_.want;
    in_flight_->spare = wish_.spare;
    told_ = wish_;
  }
  if (!in_flight_) return std::nullopt;
  sent_ = now;
  next_heartbeat_ = now + kHeartbeat;
  return in_flight_;
}

void LendingAgent::answer(const LendAnswer& answer) {
  CHECK(in_flight_ && !repeat_);
  const LendRequest sent = *std::exchange(in_flight_, std::nullopt);
  if (answer.fault == LendFault::kStaleEpoch) {
    state_ = LendingState::kFenced;
    return;
  }
  if (answer.fault != LendFault::kNone) {
    // It has forgotten the party, or cannot take it. The next message presents the loans.
    epoch_ = 0;
    return;
  }
  if (sent.verb != LendVerb::kJoin && epoch_ == 0) return;  // it came too late
  take(answer.reply);
}

void LendingAgent::take(const LendReply& reply) {
  answered_ = sent_;
  epoch_ = reply.epoch;
  expiry_ = reply.expiry;
  state_ = LendingState::kJoined;
  available_ = reply.available;
  const std::int64_t before = kept();
  loans_.clear();
  for (const LoanView& loan : reply.loans)
    loans_[loan.lease] = {loan.bytes, loan.keep, loan.socket};
  if (kept() < before && kept() < borrowed()) ++recalls_;
}

void LendingAgent::failed(TimePoint now) {
  CHECK(in_flight_ && !repeat_);
  repeat_ = true;
  next_heartbeat_ = now + kRetry;
}

}  // namespace sluice
