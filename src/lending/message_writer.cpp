#include "lending/message_writer.h"

#include <fmt/format.h>

#include <utility>

namespace sluice {

MessageWriter::MessageWriter(std::string party, std::string key_prefix)
    : party_(std::move(party)), key_prefix_(std::move(key_prefix)) {}

LendRequest MessageWriter::begin(LendVerb verb, std::uint64_t epoch) {
  LendRequest message;
  message.verb = verb;
  message.party = party_;
  message.epoch = epoch;
  message.key = fmt::format("{}.{}", key_prefix_, ++keys_);
  if (verb != LendVerb::kJoin) return message;
  message.earlier_joins = joins_.earlier();
  joins_.add(message.key);
  return message;
}

std::optional<LendRequest> MessageWriter::leave(std::uint64_t epoch) const {
  if (epoch == 0) return std::nullopt;
  LendRequest message;
  message.verb = LendVerb::kLeave;
  message.party = party_;
  message.epoch = epoch;
  return message;
}

}  // namespace sluice
