#include "engine/step_trace.h"

#include <fmt/format.h>

#include <utility>

#include "device/op_shape.h"

namespace sluice {
namespace {

double microseconds(Duration d) { return to_milliseconds(d) * 1e3; }

// Names and shapes consist of letters, digits and signs that JSON takes as they are.
std::string event(std::string_view name, Duration begin, Duration length,
                  const std::string& arguments) {
  return fmt::format(
      R"({{"name":"{}","ph":"X","pid":0,"tid":0,"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", name,
      microseconds(begin), microseconds(length), arguments);
}

void append_step(std::string& events, const std::optional<TracedStep>& step, const char* kind) {
  if (!step) return;
  if (!events.empty()) events += ",\n";
  events += event(fmt::format("{} step", kind), step->begin, step->length,
                  fmt::format(R"("tokens":{},"sequences":{},"ops":{})", step->tokens, step->seqs,
                              step->ops.size()));
  for (const TracedOp& op : step->ops) {
    events += ",\n";
    events += event(op.name, op.begin, op.length, fmt::format(R"("shape":"{}")", op.shape));
  }
}

}  // namespace

StepTrace::StepTrace(const Clock& clock) : clock_(clock), start_(clock.now()) {}

void StepTrace::run(const OpList& list, Ops& ops, std::int32_t tokens, std::int32_t seqs,
                    bool has_prompt) {
  ends_.resize(list.size());
  const Duration begin = clock_.now() - start_;
  for (std::size_t i = 0; i < list.size(); ++i) {
    list.run(ops, i);
    ends_[i] = clock_.now() - start_;
  }
  std::optional<TracedStep>& kept = has_prompt ? prompt_ : decode_;
  if (kept && kept->tokens > tokens) return;
  TracedStep step{tokens, seqs, begin, (list.size() == 0 ? begin : ends_.back()) - begin, {}};
  Duration last = begin;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const OpCall call = list[i];
    step.ops.push_back({op_info(call.op).name, op_shape(call, true), last, ends_[i] - last});
    last = ends_[i];
  }
  kept = std::move(step);
}

std::string StepTrace::json() const {
  std::string events;
  append_step(events, prompt_, "prompt");
  append_step(events, decode_, "decode");
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", events);
}

}  // namespace sluice
