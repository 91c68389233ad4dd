// FakeEngineLoop: an EngineLoop without an engine, for tests: it records what the server asks and
// reports what the test puts into `pending`. Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "server/engine_loop.h"

namespace sluice::test {

class FakeEngineLoop final : public EngineLoop {
 public:
  Status submit(Request request) override {
    if (refusal) return *refusal;
    submitted.push_back(std::move(request));
    return {};
  }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  void end_choice(RequestId id, std::int32_t choice, FinishReason) override {
    ended.emplace_back(id, choice);
  }
  void ask_progress() override { ++progress_asked; }
  Status supports_pins() const override {
    if (no_pins) return *no_pins;
    return {};
  }
  Status ask_pins(PinQuestion question) override {
    if (refusal) return *refusal;
    pin_questions.push_back(std::move(question));
    return {};
  }
  void take(OutputBatch& batch) override {
    batch.clear();
    std::swap(batch, pending);
  }
  std::int32_t max_requests() const override { return limit; }
  EngineState state() const override { return current; }
  std::optional<Error> failure() const override { return reason; }
  std::int32_t unfinished_requests() const override {
    return static_cast<std::int32_t>(submitted.size());
  }

  OutputBatch pending;
  EngineState current = EngineState::kReady;
  std::optional<Error> reason;   // of kFailed
  std::optional<Error> refusal;  // the answer to submit(); none: it takes the request
  std::int32_t limit = 1024;
  std::vector<Request> submitted;
  std::vector<RequestId> cancelled;
  std::vector<std::pair<RequestId, std::int32_t>> ended;
  int progress_asked = 0;
  std::optional<Error> no_pins;  // why pins are not supported; none: they are
  std::vector<PinQuestion> pin_questions;
};

}  // namespace sluice::test
