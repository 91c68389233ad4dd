// MessageWriter: begins the messages of one party to the coordinator: its name, its epoch, and a
// key that no other message of the process has.
// Owner: LendingAgent or PageOffer. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lending/lending_message.h"
#include "membership/join_keys.h"

namespace sluice {

class MessageWriter {
 public:
  MessageWriter(std::string party, std::string key_prefix);

  LendRequest begin(LendVerb verb, std::uint64_t epoch);
  // Ends the party in order; nothing while it has not joined (epoch 0). It has no key.
  std::optional<LendRequest> leave(std::uint64_t epoch) const;

 private:
  const std::string party_;
  const std::string key_prefix_;
  std::uint64_t keys_ = 0;
  JoinKeys joins_;
};

}  // namespace sluice
