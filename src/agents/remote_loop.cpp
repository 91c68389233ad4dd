#include "agents/remote_loop.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "function/append_batch.h"

namespace sluice {

RemoteLoop::RemoteLoop(Options options, AgentChannel& channel, const Clock& clock,
                       std::function<void()> wake)
    : options_(std::move(options)),
      channel_(channel),
      clock_(clock),
      wake_(std::move(wake)),
      outstanding_(options_.model) {}

RemoteLoop::~RemoteLoop() { channel_.forget(*this); }

void RemoteLoop::set_tenant(const std::string& tenant) {
  channel_.send({.kind = AgentCommandKind::kStart,
                 .instance = options_.instance,
                 .time = clock_.now(),
                 .backbone = options_.backbone,
                 .adapter = options_.adapter_digest,
                 .tenant = tenant},
                options_.agent);
}

AgentCommand RemoteLoop::frame_command(ToFunction frame) const {
  return {.kind = AgentCommandKind::kFrame,
          .instance = options_.instance,
          .time = clock_.now(),
          .frame = std::move(frame)};
}

void RemoteLoop::post(ToFunction frame) {
  channel_.send(frame_command(std::move(frame)), options_.agent);
}

Status RemoteLoop::submit(Request request) {
  CHECK(request.adapter == options_.adapter);
  if (lost_ || state_ != EngineState::kReady) {
    return unavailable("the function has failed, or its machine is gone");
  }
  const TokenGrammarPtr grammar = std::move(request.sampling.grammar);
  request.sampling.grammar = nullptr;  // the agent checks its function's texts
  std::int32_t place = -1;
  if (grammar != nullptr) {
    if (!grammars_.contains(grammar)) RETURN_IF_ERROR(check_grammar(*grammar));
    const GrammarPlaces::Place taken = grammars_.take(grammar);
    place = taken.index;
    if (taken.new_vocabulary) post(vocabulary_frame(grammar->trie()));
    if (taken.is_new) post(grammar_frame(*grammar, place));
  }
  const AgentCommand command = frame_command(RequestFrame{std::move(request), place});
  if (!channel_.send(command, options_.agent)) {
    return invalid_argument("the request is larger than what can be sent to a function");
  }
  outstanding_.add(std::get<RequestFrame>(*command.frame).request);
  return {};
}

void RemoteLoop::cancel(RequestId id) {
  if (outstanding_.contains(id)) post(CancelFrame{id});
}

void RemoteLoop::end_choice(RequestId id, std::int32_t choice, FinishReason reason) {
  if (!outstanding_.contains(id)) return;
  outstanding_.end_choice(id, choice);
  post(EndChoiceFrame{id, choice, reason});
}

void RemoteLoop::ask_progress() {
  if (lost_) {
    pending_.has_progress = true;
    return wake_();
  }
  progress_wanted_ = true;
  post(AskProgressFrame{});
}

void RemoteLoop::take(OutputBatch& batch) {
  batch.clear();
  std::swap(batch, pending_);
  batch.gauges = gauges_;
}

FunctionUse RemoteLoop::use() const {
  __extension__ typedef __int128 Wide;
  constexpr Wide kMost = Duration::max().count();
  const Wide scaled =
      Wide(use_.turn_time.count()) * options_.turn_cores / options_.gateway_turn_cores;
  FunctionUse use = use_;
  use.turn_time = Duration(static_cast<std::int64_t>(std::min(scaled, kMost)));
  return use;
}

Status RemoteLoop::handle(AgentOutput output) {
  if (lost_) return {};
  if (output.turn_time < use_.turn_time) return invalid_argument("a turn time has fallen");
  use_.turn_time = output.turn_time;
  if (auto* state = std::get_if<StateFrame>(&output.frame)) return handle_state(std::move(*state));
  return handle_batch(std::get<OutputBatch>(std::move(output.frame)));
}

Status RemoteLoop::handle_state(StateFrame frame) {
  if (frame.state != EngineState::kReady && frame.state != EngineState::kFailed) return {};
  if (state_ == EngineState::kFailed) return invalid_argument("a failed function has a new state");
  state_ = frame.state;
  if (state_ == EngineState::kFailed) {
    failure_ = Error{frame.code, fmt::format("agent '{}': {}", options_.agent_name, frame.message)};
    outstanding_.fail_all(clock_.now(), pending_.events);
  }
  wake_();
  return {};
}

Status RemoteLoop::handle_batch(OutputBatch batch) {
  RETURN_IF_ERROR(outstanding_.accept(batch, clock_.now()));
  gauges_ = batch.gauges;
  if (batch.has_progress) progress_wanted_ = false;
  append_batch(std::move(batch), pending_);
  wake_();
  return {};
}

void RemoteLoop::lost() {
  if (lost_) return;
  lost_ = true;
  const std::size_t calls = outstanding_.size();
  outstanding_.fail_all(clock_.now(), pending_.events);
  if (progress_wanted_) pending_.has_progress = true;
  gauges_ = {};
  use_.own_bytes = 0;
  if (state_ != EngineState::kFailed) state_ = EngineState::kLoading;
  if (calls > 0) {
    log_error(fmt::format("agent '{}' is gone: {} calls of a function on it end with an error",
                          options_.agent_name, calls));
  }
  wake_();
}

void RemoteLoop::fenced() {
  if (!lost_ || state_ == EngineState::kFailed) return;
  state_ = EngineState::kFailed;
  failure_ = unavailable(fmt::format("agent '{}' is gone", options_.agent_name));
  wake_();
}

}  // namespace sluice
