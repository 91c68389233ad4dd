#include "agents/agent_book.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
AgentAnswer AgentBook::check_join(const AgentJoin& join) const {
  if (backbones_.empty()) {
    return agent_fault(AgentFault::kNotReady,
                       "the gateway loads its backbones; repeat the request");
  }
  if (!is_member_name(join.agent)) {
    return agent_fault(AgentFault::kBadRequest, fmt::format("agent: must be {}", kMemberNameRule));
  }
  if (!is_member_name(join.key)) {
    return agent_fault(AgentFault::kBadRequest, fmt::format("key: must be {}", kMemberNameRule));
  }
  if (!std::ranges::all_of(join.earlier_joins, is_member_name)) {
    return agent_fault(AgentFault::kBadRequest,
                       fmt::format("earlier_joins: each must be {}", kMemberNameRule));
  }
  for (const AgentBackbone& one : join.backbones) {
    const auto found = std::ranges::find(backbones_, one.name, &GatewayBackbone::name);
    if (found == backbones_.end()) {
      return agent_fault(AgentFault::kUnknownName,
                         fmt::format("backbones: the gateway has no backbone '{}'", one.name));
    }
    if (found->digest != one.digest) {
      return agent_fault(
          AgentFault::kBadRequest,
          fmt::format("backbones: '{}' has the digest {}, that of the gateway has {}: the "
                      "checkpoints differ",
                      one.name, one.digest, found->digest));
    }
  }
  return {};
}

AgentBook::Joined AgentBook::join(TimePoint now, const AgentJoin& join) {
  Joined joined{check_join(join), false};
  if (joined.answer.fault != AgentFault::kNone) return joined;
  const JoinKind kind = members_.classify(join.agent, join.key);
  // A process that was replaced must not take its name back. A late copy of its own join is not
  // another process.
  const auto is_own = [&](const std::string& key) {
    return std::ranges::find(join.earlier_joins, key) != join.earlier_joins.end();
  };
  if (kind == JoinKind::kReplaces && !join.earlier_joins.empty() &&
      !is_own(members_.at(join.agent).joins.back())) {
    joined.answer = agent_fault(
        AgentFault::kStaleEpoch,
        fmt::format("another process has joined as agent '{}'; give each agent its own --name",
                    join.agent));
    return joined;
  }
  switch (kind) {
    case JoinKind::kTooMany:
      joined.answer = agent_fault(AgentFault::kTooManyAgents,
                                  fmt::format("{} agents have joined, the limit", kMaxAgents));
      return joined;
    case JoinKind::kOver:
      joined.answer = agent_fault(
          AgentFault::kStaleEpoch,
          fmt::format("the join with key '{}' of agent '{}' is over", join.key, join.agent));
      return joined;
    case JoinKind::kRepeated:  // its answer was lost
      members_.hear(now, join.agent);
      break;
    case JoinKind::kNew:
    case JoinKind::kReplaces:
      members_.join(now, join.agent, join.key, join.earlier_joins);
      sequences_[join.agent] = 0;
      joined.is_new = true;
  }
  joined.answer.epoch = members_.at(join.agent).epoch;
  joined.answer.expiry = members_.expiry();
  return joined;
}

AgentAnswer AgentBook::standing(const std::string& agent, std::uint64_t epoch) const {
  switch (members_.standing(agent, epoch)) {
    case Standing::kMember: return {};
    case Standing::kUnknown:
      return agent_fault(
          AgentFault::kUnknownAgent,
          fmt::format("agent '{}' has not joined, has left, or was silent for too long; "
                      "end its functions and join",
                      agent));
    case Standing::kStaleEpoch:
      return agent_fault(
          AgentFault::kStaleEpoch,
          fmt::format("the epoch of agent '{}' is {}, not {}; if another process has joined by "
                      "that name, end the functions",
                      agent, members_.at(agent).epoch, epoch));
  }
  return {};
}

AgentAnswer AgentBook::check(TimePoint now, const std::string& agent, std::uint64_t epoch) {
  AgentAnswer answer = standing(agent, epoch);
  if (answer.fault == AgentFault::kNone) members_.hear(now, agent);
  return answer;
}

AgentAnswer AgentBook::check_next(const std::string& agent, std::uint64_t epoch,
                                  std::uint64_t sequence) const {
  AgentAnswer answer = standing(agent, epoch);
  if (answer.fault != AgentFault::kNone) return answer;
  const std::uint64_t last = sequences_.at(agent);
  if (sequence <= last) {
    return agent_fault(
        AgentFault::kRepeated,
        fmt::format("sequence: {} was handled before; the next one is {}", sequence, last + 1));
  }
  if (sequence == last + 1) return {};
  return agent_fault(AgentFault::kBadRequest,
                     fmt::format("sequence: must be {}, not {}", last + 1, sequence));
}

void AgentBook::accept(TimePoint now, const std::string& agent, std::uint64_t sequence) {
  sequences_[agent] = sequence;
  members_.hear(now, agent);
}

void AgentBook::remove(const std::string& agent) {
  members_.remove(agent);
  sequences_.erase(agent);
}

std::vector<std::string> AgentBook::advance(TimePoint now) {
  std::vector<std::string> silent = members_.silent(now);
  for (const std::string& agent : silent) remove(agent);
  return silent;
}

}  // namespace sluice
