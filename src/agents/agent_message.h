// The REST messages between a gateway and its agents, as plain data and as JSON. An agent is a
// process on another machine that runs functions for the gateway.
// docs/gateway-machines.md lists paths and fields.
// Values: plain. Functions: pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "membership/join_keys.h"

namespace sluice {

inline constexpr std::int64_t kMaxAgentBytes = std::int64_t{1} << 50;
inline constexpr std::int32_t kMaxAgentCores = 1 << 16;
inline constexpr std::int32_t kMaxAgentFunctions = 4096;
inline constexpr std::size_t kMaxAgentBackbones = 1000;
inline constexpr std::size_t kMaxAgentAdapters = 1024;  // of a plan, and of a report
inline constexpr std::size_t kMaxAgentJson = std::size_t{1} << 20;

// A model that the gateway's functions compute on, as the gateway has it.
struct GatewayBackbone {
  std::string name;
  std::string directory;
  std::string digest;  // of the checkpoint, hexadecimal
  std::int32_t block_size = 0;
  friend bool operator==(const GatewayBackbone&, const GatewayBackbone&) = default;
};

// A model that an agent has in memory.
struct AgentBackbone {
  std::string name;
  std::string digest;
  friend bool operator==(const AgentBackbone&, const AgentBackbone&) = default;
};

// A process begins. It runs no function.
struct AgentJoin {
  std::string agent;
  std::string key;  // a new one for each join; a repeat with the same key changes nothing
  // Keys of joins that this process has sent before, kMaxEarlierJoins at most.
  std::vector<std::string> earlier_joins = {};
  std::int64_t cores = 0;
  std::int64_t turn_cores = 0;  // that a function has while it has a turn
  std::int64_t memory_bytes = 0;
  std::int64_t max_functions = 0;
  std::vector<AgentBackbone> backbones;
};

struct AgentInstance {
  std::uint64_t id = 0;
  std::int64_t own_bytes = 0;  // resident memory that it shares with no other process
};

enum class BackboneLoad : std::uint8_t { kAbsent, kLoading, kLoaded };

std::string_view backbone_load_name(BackboneLoad load);  // "absent" and so on

// A backbone of the agent's, as it is now.
struct AgentHolding {
  std::string name;
  BackboneLoad load = BackboneLoad::kAbsent;
  std::int64_t workers = 0;       // warm workers that it keeps
  std::int64_t worker_bytes = 0;  // of them together, as far as was seen; 0: unknown
  friend bool operator==(const AgentHolding&, const AgentHolding&) = default;
};

// An adapter in the agent's memory.
struct AgentAdapter {
  std::string backbone;
  std::string digest;
  Duration took{0};  // from the question to the gateway until it was in memory
  friend bool operator==(const AgentAdapter&, const AgentAdapter&) = default;
};

// It lives, and runs these functions.
struct AgentReport {
  std::string agent;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;  // of its messages: one more than the last
  std::int64_t free_bytes = 0;
  bool draining = false;  // no more functions are to start there
  std::vector<AgentHolding> backbones;
  std::vector<AgentAdapter> adapters;
  std::vector<AgentInstance> instances;
};

// Opens the stream of commands, or leaves.
struct AgentCall {
  std::string agent;
  std::uint64_t epoch = 0;
};

enum class AgentFault : std::uint8_t {
  kNone,
  kBadRequest,    // a field is wrong
  kWrongToken,    // or none
  kUnknownPath,   // or a wrong method
  kUnknownAgent,  // it never joined, left, or was silent for too long: it must join
  kUnknownName,   // a backbone, an instance or an adapter
  kStaleEpoch,    // a later process has its name
  kRepeated,      // a message with this number was handled before
  kTooManyAgents,
  kNotReady,  // the gateway still loads
};

// "stale_epoch" and so on; stable, for JSON.
std::string_view agent_fault_name(AgentFault fault);
int agent_fault_status(AgentFault fault);  // of HTTP

struct AgentAnswer {
  AgentFault fault = AgentFault::kNone;
  std::string message;      // of the fault: names the field and says what is expected
  std::uint64_t epoch = 0;  // of a join
  Duration expiry{0};       // of a join: without a message for so long, the gateway forgets it
};

AgentAnswer agent_fault(AgentFault fault, std::string message);

// Errors name the field.
Result<AgentJoin> parse_agent_join(std::string_view body);
Result<AgentReport> parse_agent_report(std::string_view body);
Result<AgentCall> parse_agent_call(std::string_view body);
std::string agent_json(const AgentJoin& join);
std::string agent_json(const AgentReport& report);
std::string agent_json(const AgentCall& call);

std::string agent_answer_json(const AgentAnswer& answer);
// Errors: the text is no answer of a gateway.
Result<AgentAnswer> parse_agent_answer(std::string_view body);

std::string gateway_backbones_json(const std::vector<GatewayBackbone>& backbones);
Result<std::vector<GatewayBackbone>> parse_gateway_backbones(std::string_view body);

}  // namespace sluice
