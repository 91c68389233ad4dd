// AgentBook: which agents have joined a gateway, by the rules of MemberTable, and the order of
// their messages. Pure: a time and a message in, an answer out. A message with a fault changes
// nothing, not even the time at which the agent was heard last.
// Owner: AgentHub. Threads: one. Limits: kMaxAgents.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agents/agent_message.h"
#include "base/clock.h"
#include "membership/member_table.h"

namespace sluice {

class AgentBook {
 public:
  static constexpr std::size_t kMaxAgents = 256;

  // `first_epoch`: as of MemberTable.
  AgentBook(Duration expiry, std::uint64_t first_epoch)
      : members_(expiry, first_epoch, kMaxAgents) {}

  // Joins are refused until it is called.
  void set_backbones(std::vector<GatewayBackbone> backbones) { backbones_ = std::move(backbones); }
  const std::vector<GatewayBackbone>& backbones() const { return backbones_; }

  // `is_new`: nothing was known of this process, so all from before is over.
  struct Joined {
    AgentAnswer answer;
    bool is_new = false;
  };
  Joined join(TimePoint now, const AgentJoin& join);
  // Whether a message with this epoch counts; the agent was heard then.
  AgentAnswer check(TimePoint now, const std::string& agent, std::uint64_t epoch);
  // The same for numbered messages, before their content is looked at. The caller calls accept()
  // once it has found nothing wrong.
  AgentAnswer check_next(const std::string& agent, std::uint64_t epoch,
                         std::uint64_t sequence) const;
  // REQUIRES: check_next() has no fault.
  void accept(TimePoint now, const std::string& agent, std::uint64_t sequence);
  void remove(const std::string& agent);
  // Forgets agents that were silent for too long, and returns them.
  std::vector<std::string> advance(TimePoint now);

  std::size_t size() const { return members_.size(); }

 private:
  AgentAnswer check_join(const AgentJoin& join) const;
  AgentAnswer standing(const std::string& agent, std::uint64_t epoch) const;

  MemberTable members_;
  std::map<std::string, std::uint64_t> sequences_;  // of the last message, by agent
  std::vector<GatewayBackbone> backbones_;
};

}  // namespace sluice
