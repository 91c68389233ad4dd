// The binary messages between a gateway and an agent, which carry the frames of function processes
// (function/frames.h): commands go down a stream that the agent keeps open, outputs come up in
// numbered requests.
//
// down: length (u32, of what follows) | kind (u32) | instance (u64) | time (u64) | content
// up:   instance (u64) | turn time (u64) | frame, with its length in front; any number of these
//
// A plan names the epoch that it is for, so that a plan for an earlier session counts for nothing.
//
// The time of a command is the gateway's, in nanoseconds: the agent learns from it by how much its
// clock differs. Decoding checks lengths and kinds. Functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "function/frames.h"

namespace sluice {

enum class AgentCommandKind : std::uint32_t {
  kPing,   // the gateway lives
  kStart,  // an instance; content: backbone, adapter, tenant
  kFrame,  // content: a frame for the instance's function
  kEnd,    // the instance
  kPlan,   // content: epoch, and the backbones to have in memory
};

// A backbone that an agent is to have in memory. One that is not in a plan leaves when no instance
// uses it, and so does an adapter.
struct PlannedBackbone {
  std::string name;
  std::uint32_t workers = 0;  // warm workers to keep on it
  std::vector<std::string>
      adapters;  // to have with it, by digest; at most kMaxAgentAdapters in all
  friend bool operator==(const PlannedBackbone&, const PlannedBackbone&) = default;
};

struct AgentCommand {
  AgentCommandKind kind = AgentCommandKind::kPing;
  std::uint64_t instance = 0;
  TimePoint time;
  std::string backbone = {};               // kStart
  std::string adapter = {};                // kStart: its digest; empty: the base model
  std::string tenant = {};                 // kStart
  std::optional<ToFunction> frame = {};    // kFrame
  std::uint64_t epoch = 0;                 // kPlan
  std::vector<PlannedBackbone> plan = {};  // kPlan
};

// kResourceExhausted: the frame is too large.
Result<std::vector<std::byte>> encode_command(const AgentCommand& command);

// Cuts a stream into commands.
class AgentCommandReader {
 public:
  // Calls `take` for each command that is complete. kInvalidArgument: the stream is broken.
  Status put(std::string_view bytes, const std::function<Status(AgentCommand)>& take);

 private:
  std::string input_;
};

struct AgentOutput {
  std::uint64_t instance = 0;
  Duration turn_time{0};  // of the instance, since its start
  FromFunction frame;
};

Result<std::vector<std::byte>> encode_output(const AgentOutput& output);
// kInvalidArgument, and nothing, if anything is wrong.
Result<std::vector<AgentOutput>> decode_outputs(std::string_view body);

// Adds `offset` to all times of a request, or of a batch.
void shift_times(Duration offset, Request& request);
void shift_times(Duration offset, OutputBatch& batch);

}  // namespace sluice
