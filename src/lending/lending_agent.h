// LendingAgent: a party's side of memory lending for a process that borrows: it decides the next
// message to the coordinator and how much memory the process may use. Pure: the owner sends the
// messages, and tells it the time, the answers and the load.
//
// The limit is `least` plus the loans that the process may keep. `least` is always its own.
// - A recall lowers the limit at once. The loan goes back when the memory is no longer in use.
// - Without an answer for half of the expiry, the limit is `least` until the coordinator answers
//   again: so the memory is free before the coordinator lends it to another party.
// - A coordinator that has forgotten the party gets the loans presented.
// - A later process of the same name fences this one: it stays at `least` for good.
// One message is in flight at a time. A message without an answer is repeated with its key.
// Owner: the server. Threads: one. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lending/lending_message.h"
#include "lending/lending_policy.h"
#include "lending/message_writer.h"

namespace sluice {

struct LendingAgentOptions {
  std::string party;
  std::string device;
  std::string key_prefix;  // differs from that of every other process, also of the same name
  std::int64_t least = 0;
  std::int64_t most = 0;
  LendKind kind = LendKind::kBudget;
};

enum class LendingState : std::uint8_t {
  kAlone,  // no coordinator answers: the process has `least`
  kJoined,
  kFenced,  // another process has the name
};

class LendingAgent {
 public:
  static constexpr Duration kHeartbeat = std::chrono::milliseconds(100);
  static constexpr Duration kRetry = std::chrono::milliseconds(200);

  explicit LendingAgent(LendingAgentOptions options);

  // Looks at the load, and at the time since the last answer. Called every few milliseconds.
  void update(TimePoint now, const LendingLoad& load);
  // The message to send now, if one is due. The owner reports its answer or its failure.
  std::optional<LendRequest> next(TimePoint now);
  // REQUIRES: next() gave a message that has no answer yet.
  void answer(const LendAnswer& answer);
  void failed(TimePoint now);

  std::int64_t limit() const;
  std::int64_t borrowed() const;  // held, those that are asked back included
  LendingState state() const { return state_; }
  // All loans while joined, else none: without a coordinator no page of another process is used.
  std::vector<LoanView> loans() const;
  std::uint64_t recalls() const { return recalls_; }
  // The message that ends the party in order; empty when it has not joined.
  std::optional<LendRequest> leave() const { return messages_.leave(epoch_); }

 private:
  struct Loan {
    std::int64_t bytes = 0;
    std::int64_t keep = 0;
    std::string socket = {};
  };

  LendRequest join();
  std::vector<LeaseBytes> held() const;  // loans, as a join presents them
  std::optional<LendRequest> respond();
  std::int64_t kept() const;
  void take(const LendReply& reply);

  const LendingAgentOptions options_;
  MessageWriter messages_;
  LendingPolicy policy_;
  LendingState state_ = LendingState::kAlone;
  std::uint64_t epoch_ = 0;  // 0: not joined
  Duration expiry_{0};
  std::map<std::string, Loan> loans_;  // by lease
  std::int64_t available_ = 0;
  LendingWish wish_;
  LendingWish told_;
  LendingLoad load_;
  std::optional<LendRequest> in_flight_;
  bool repeat_ = false;                // in_flight_ had no answer
  TimePoint sent_;                     // when in_flight_ was first sent
  std::optional<TimePoint> answered_;  // when the last answered message was sent
  TimePoint next_heartbeat_{};
  std::uint64_t recalls_ = 0;
};

}  // namespace sluice
