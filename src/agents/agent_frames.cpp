#include "agents/agent_frames.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "agents/agent_message.h"
#include "base/byte_stream.h"

namespace sluice {
namespace {

constexpr std::size_t kHeadBytes = sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t);
constexpr std::size_t kMaxCommandBytes = kMaxFrameBytes + 4096;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// A function may report any time; the sum stays within the range of times.
TimePoint shifted(TimePoint time, Duration offset) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(time.since_start.count(), offset.count(), &sum)) {
    return {offset > Duration(0) ? Duration::max() : Duration::min()};
  }
  return {Duration(sum)};
}

Result<AgentCommand> decode_command(std::span<const std::byte> body) {
  ByteReader in(body);
  AgentCommand command;
  const std::uint32_t kind = in.u32();
  command.instance = in.u64();
  command.time = TimePoint{Duration(static_cast<std::int64_t>(in.u64()))};
  if (kind > static_cast<std::uint32_t>(AgentCommandKind::kPlan)) {
    return invalid_argument(fmt::format("a command has the unknown kind {}", kind));
  }
  command.kind = static_cast<AgentCommandKind>(kind);
  if (command.kind == AgentCommandKind::kFrame) {
    const auto length = frame_length(in.bytes(kFrameLengthBytes));
    if (!length) return length.error();
    if (*length != in.left()) return invalid_argument("a command's frame has a wrong length");
    ASSIGN_OR_RETURN(command.frame, decode_to_function(in.bytes(*length)));
  } else if (command.kind == AgentCommandKind::kStart) {
    command.backbone = in.text();
    command.adapter = in.text();
    command.tenant = in.text();
  } else if (command.kind == AgentCommandKind::kPlan) {
    command.epoch = in.u64();
    const std::uint32_t count = in.u32();
    if (count > kMaxAgentBackbones) {
      return invalid_argument(fmt::format("a plan has {} backbones", count));
    }
    std::uint64_t adapters = 0;
    for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
      PlannedBackbone& backbone = command.plan.emplace_back();
      backbone.name = in.text();
      backbone.workers = in.u32();
      if (backbone.workers > kMaxAgentFunctions) {
        return invalid_argument(fmt::format("a plan has {} warm workers", backbone.workers));
      }
      const std::uint32_t here = in.u32();
      adapters += here;
      if (adapters > kMaxAgentAdapters) {
        return invalid_argument(fmt::format("a plan has {} adapters", adapters));
      }
      for (std::uint32_t j = 0; j < here && in.ok(); ++j) {
        backbone.adapters.emplace_back(in.text());
      }
    }
  }
  if (!in.ok() || in.left() != 0) return invalid_argument("a command is cut off or too long");
  return command;
}

}  // namespace

Result<std::vector<std::byte>> encode_command(const AgentCommand& command) {
  std::vector<std::byte> content;
  if (command.kind == AgentCommandKind::kFrame) {
    ASSIGN_OR_RETURN(content, encode_frame(*command.frame));
  } else if (command.kind == AgentCommandKind::kStart) {
    ByteWriter start;
    start.text(command.backbone);
    start.text(command.adapter);
    start.text(command.tenant);
    content = start.take();
  } else if (command.kind == AgentCommandKind::kPlan) {
    ByteWriter plan;
    plan.u64(command.epoch);
    plan.u32(static_cast<std::uint32_t>(command.plan.size()));
    for (const PlannedBackbone& backbone : command.plan) {
      plan.text(backbone.name);
      plan.u32(backbone.workers);
      plan.u32(static_cast<std::uint32_t>(backbone.adapters.size()));
      for (const std::string& digest : backbone.adapters) plan.text(digest);
    }
    content = plan.take();
    if (content.size() > kMaxFrameBytes) return resource_exhausted("a plan is too large");
  }
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(kHeadBytes + content.size()));
  out.u32(static_cast<std::uint32_t>(command.kind));
  out.u64(command.instance);
  out.u64(static_cast<std::uint64_t>(command.time.since_start.count()));
  out.bytes(content);
  return out.take();
}

Status AgentCommandReader::put(std::string_view bytes,
                               const std::function<Status(AgentCommand)>& take) {
  input_ += bytes;
  std::size_t used = 0;
  while (input_.size() - used >= sizeof(std::uint32_t)) {
    std::uint32_t length = 0;
    std::memcpy(&length, input_.data() + used, sizeof(length));
    if (length < kHeadBytes || length > kMaxCommandBytes) {
      return invalid_argument(fmt::format("a command announces {} bytes", length));
    }
    if (input_.size() - used - sizeof(length) < length) break;
    const std::string_view body(input_.data() + used + sizeof(length), length);
    used += sizeof(length) + length;
    ASSIGN_OR_RETURN(AgentCommand command, decode_command(bytes_of(body)));
    RETURN_IF_ERROR(take(std::move(command)));
  }
  input_.erase(0, used);
  return {};
}

Result<std::vector<std::byte>> encode_output(const AgentOutput& output) {
  ASSIGN_OR_RETURN(const std::vector<std::byte> frame, encode_frame(output.frame));
  ByteWriter out;
  out.u64(output.instance);
  out.u64(static_cast<std::uint64_t>(output.turn_time.count()));
  out.bytes(frame);
  return out.take();
}

Result<std::vector<AgentOutput>> decode_outputs(std::string_view body) {
  std::vector<AgentOutput> outputs;
  ByteReader in(bytes_of(body));
  while (in.left() > 0) {
    AgentOutput& output = outputs.emplace_back();
    output.instance = in.u64();
    output.turn_time = Duration(static_cast<std::int64_t>(in.u64()));
    ASSIGN_OR_RETURN(const std::size_t length, frame_length(in.bytes(kFrameLengthBytes)));
    const auto frame = in.bytes(length);
    if (!in.ok()) return invalid_argument("an output is cut off");
    if (output.turn_time < Duration(0)) return invalid_argument("a turn time is negative");
    ASSIGN_OR_RETURN(output.frame, decode_from_function(frame));
  }
  return outputs;
}

void shift_times(Duration offset, Request& request) {
  request.arrival = shifted(request.arrival, offset);
  if (request.deadline) request.deadline = shifted(*request.deadline, offset);
}

// A choice that never ran has no time of a first step.
void shift_times(Duration offset, OutputBatch& batch) {
  for (OutputEvent& event : batch.events) {
    event.time = shifted(event.time, offset);
    if (event.first_scheduled > TimePoint{}) {
      event.first_scheduled = shifted(event.first_scheduled, offset);
    }
  }
  for (StepRecord& step : batch.steps) step.end = shifted(step.end, offset);
}

}  // namespace sluice
