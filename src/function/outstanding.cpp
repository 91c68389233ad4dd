#include "function/outstanding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "function/due_times.h"

namespace sluice {
namespace {

Error lie(RequestId id, const char* what) {
  return invalid_argument(fmt::format("a function reported {} (request {})", what, id));
}

}  // namespace

void OutstandingRequests::add(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  Entry entry;
  entry.due = first_token_due(request);
  entry.max_tokens = sampling.max_tokens;
  entry.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  entry.logprobs_per_token = std::int64_t{sampling.logprobs} + 1;
  entry.scores_wanted = (std::int64_t{sampling.prompt_logprobs} + 1) * (entry.prompt_tokens - 1);
  entry.embedding_wanted = request.pooling == Pooling::kNone ? 0 : model_.hidden_size;
  entry.choices.resize(static_cast<std::size_t>(sampling.n));
  entry.unfinished = entry.choices.size();
  if (sampling.grammar != nullptr) {
    for (Choice& choice : entry.choices) {
      choice.grammar.assign(sampling.grammar);
      choice.may_end = !sampling.stop_token_ids.empty();
    }
  }
  requests_.emplace(request.id, std::move(entry));
}

void OutstandingRequests::end_choice(RequestId id, std::int32_t choice) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || choice < 0) return;
  const auto at = static_cast<std::size_t>(choice);
  if (at < found->second.choices.size()) found->second.choices[at].may_end = true;
}

std::optional<TimePoint> OutstandingRequests::due() const {
  if (requests_.empty()) return std::nullopt;
  const auto due = [](const auto& entry) { return entry.second.due; };
  return due(*std::ranges::min_element(requests_, {}, due));
}

Status OutstandingRequests::accept(OutputBatch& batch, TimePoint now) {
  RETURN_IF_ERROR(begin(batch, now));
  RETURN_IF_ERROR(check_texts());
  return finish(batch);
}

Status OutstandingRequests::begin(OutputBatch& batch, TimePoint now) {
  texts_.clear();
  const auto valid = [&](const auto& entry) { return in_vocabulary(entry.token); };
  if (!std::all_of(batch.tokens.begin(), batch.tokens.end(),
                   [&](TokenId token) { return in_vocabulary(token); }) ||
      !std::all_of(batch.logprobs.begin(), batch.logprobs.end(), valid) ||
      !std::all_of(batch.prompt_logprobs.begin(), batch.prompt_logprobs.end(), valid)) {
    return invalid_argument("a function reported a token outside of the vocabulary");
  }
  if (!std::ranges::all_of(batch.embeddings, [](float x) { return std::isfinite(x); })) {
    return invalid_argument("a function reported a vector that is not finite");
  }
  // Before the events: a request may end after it has told its progress.
  for (const RequestProgress& progress : batch.progress) {
    if (!contains(progress.request)) return lie(progress.request, "an unknown request's progress");
  }
  for (const OutputEvent& event : batch.events) RETURN_IF_ERROR(accept_scores(event));
  for (OutputEvent& event : batch.events) {
    RETURN_IF_ERROR(accept_event(batch, event, now));
  }
  std::set<RequestId> refusals;
  for (const RefusedRequest& refused : batch.refused) {
    if (!contains(refused.request)) return lie(refused.request, "an unknown request");
    if (!refusals.insert(refused.request).second) return lie(refused.request, "a second refusal");
  }
  for (StepRecord& step : batch.steps) {
    if (step.duration < Duration(0) || step.tokens < 0) {
      return invalid_argument("a function reported a step of negative length");
    }
    step.end = std::min(step.end, now);
  }
  return {};
}

Status OutstandingRequests::check_texts() {
  for (const Text& text : texts_) RETURN_IF_ERROR(accept_tokens(text));
  return {};
}

Status OutstandingRequests::finish(const OutputBatch& batch) {
  for (const Text& text : texts_) {
    if (text.stops && !text.choice->text_ended && !text.choice->may_end) {
      return lie(text.request, "a stop inside of the text of its grammar");
    }
  }
  texts_.clear();
  remove_ended(batch);
  return {};
}

// Once nothing can be refused any more: what a refused batch ends has not ended.
void OutstandingRequests::remove_ended(const OutputBatch& batch) {
  for (const OutputEvent& event : batch.events) {
    const auto found = requests_.find(event.request);
    if (event.finish_reason == FinishReason::kNone || found == requests_.end()) continue;
    found->second.choices[static_cast<std::size_t>(event.choice)].ended = true;
    if (--found->second.unfinished == 0) requests_.erase(found);
  }
  for (const RefusedRequest& refused : batch.refused) requests_.erase(refused.request);
}

// Scores may stand behind the events of other choices, so they are counted first.
Status OutstandingRequests::accept_scores(const OutputEvent& event) {
  const auto found = requests_.find(event.request);
  if (found == requests_.end()) return lie(event.request, "an unknown request");
  Entry& entry = found->second;
  entry.scores += event.num_prompt_logprobs;
  if (entry.scores <= entry.scores_wanted) return {};
  return lie(event.request, "more log-probabilities of the prompt than were asked for");
}

// The function's sampler keeps to the same rules (sampling/sampler.h). A text that may be read in
// too many ways is not followed further; the function's sequence fails at its next token.
Status OutstandingRequests::accept_tokens(const Text& text) const {
  Choice& choice = *text.choice;
  for (const TokenId token : text.tokens) {
    const bool eos = std::ranges::find(model_.eos_ids, token) != model_.eos_ids.end();
    if (choice.grammar.overflowed()) return {};
    if (eos && !choice.text_ended && !choice.grammar.can_end()) {
      return lie(text.request, "an end before the text of its grammar is whole");
    }
    choice.text_ended = choice.text_ended || eos;
    if (eos) continue;
    if (!choice.text_ended && (choice.grammar.accept(token) || choice.grammar.overflowed())) {
      continue;
    }
    return lie(text.request, "a token that its grammar forbids");
  }
  return {};
}

Status OutstandingRequests::accept_event(const OutputBatch& batch, OutputEvent& event,
                                         TimePoint now) {
  const auto found = requests_.find(event.request);
  if (found == requests_.end()) return lie(event.request, "a request that has ended");
  Entry& entry = found->second;
  if (event.choice < 0 || static_cast<std::size_t>(event.choice) >= entry.choices.size()) {
    return lie(event.request, "an unknown choice");
  }
  Choice& choice = entry.choices[static_cast<std::size_t>(event.choice)];
  if (choice.ended || choice.ending) return lie(event.request, "a choice that has ended");
  choice.tokens += event.num_tokens;
  if (choice.tokens > entry.max_tokens) return lie(event.request, "more tokens than max_tokens");
  if (event.num_logprobs != entry.logprobs_per_token * event.num_tokens) {
    return lie(event.request, "another number of log-probabilities than was asked for");
  }
  if (event.num_embedding != entry.embedding_wanted * event.num_tokens) {
    return lie(event.request, "a vector that was not asked for, or of another length");
  }
  const bool succeeds =
      event.finish_reason == FinishReason::kStop || event.finish_reason == FinishReason::kLength;
  if ((event.num_tokens > 0 || succeeds) && entry.scores != entry.scores_wanted) {
    return lie(event.request, "a token before all log-probabilities of the prompt");
  }
  if (event.cached_prompt_tokens < 0 || event.cached_prompt_tokens > entry.prompt_tokens) {
    return lie(event.request, "a wrong number of cached tokens");
  }
  if (event.num_tokens > 0) entry.due = now + kNextTokenDue;
  event.time = std::min(event.time, now);
  event.first_scheduled = std::min(event.first_scheduled, event.time);
  if (choice.grammar.active()) {
    texts_.push_back({event.request, &choice, batch.tokens_of(event),
                      event.finish_reason == FinishReason::kStop});
  }
  if (event.finish_reason == FinishReason::kNone) return {};
  choice.ending = true;
  return {};
}

void OutstandingRequests::fail_all(TimePoint now, std::vector<OutputEvent>& events) {
  for (const auto& [id, entry] : requests_) {
    for (std::size_t i = 0; i < entry.choices.size(); ++i) {
      if (entry.choices[i].ended) continue;
      OutputEvent event;
      event.request = id;
      event.choice = static_cast<std::int32_t>(i);
      event.finish_reason = FinishReason::kError;
      event.time = now;
      events.push_back(event);
    }
  }
  requests_.clear();
}

}  // namespace sluice
