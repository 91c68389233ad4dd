#include "function_sim/core_engines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "turns/turn_times.h"

namespace sluice {
namespace {

constexpr double kStepToDecodes = 3;  // as MeasuredStepTimes is used by `follow`

// The time of `tokens` tokens of a prompt behind `context` others.
double chunk_seconds(const ModelTimes& times, std::int32_t context, std::int32_t tokens) {
  const double pairs = tokens * (context + 0.5 * (tokens + 1));
  return times.prefill.token_s * tokens + times.prefill_pair_s * pairs;
}

// The most tokens, up to `wanted`, that take `seconds` at most.
std::int32_t tokens_within(const ModelTimes& times, std::int32_t context, std::int32_t wanted,
                           double seconds) {
  std::int32_t fit = 0;
  for (std::int32_t beyond = wanted + 1; beyond - fit > 1;) {
    const std::int32_t middle = fit + (beyond - fit) / 2;
    (chunk_seconds(times, context, middle) <= seconds ? fit : beyond) = middle;
  }
  return fit;
}

}  // namespace

CoreEngines::CoreEngines(const Options& options)
    : options_(options), ledger_({.credit = kFirstTokenDue, .patience = kNextTokenDue}) {}

void CoreEngines::add(std::int32_t function, std::int32_t tenant, const ModelTimes& times) {
  Engine& engine = engines_[function];
  CHECK(engine.times == nullptr);
  engine.times = &times;
  engine.id = ledger_.add(fmt::format("{}", tenant));
  function_of_[engine.id] = function;
}

void CoreEngines::remove(std::int32_t function) {
  Engine& engine = engines_.at(function);
  CHECK(engine.times != nullptr && engine.sequences.empty());
  engine.times = nullptr;
  ledger_.remove(engine.id);
}

void CoreEngines::submit(TimePoint now, std::int32_t function, const Call& call) {
  ledger_.set_time(now);
  Engine& engine = engines_.at(function);
  CHECK(engine.times != nullptr && call.prompt_tokens >= 1 && call.output_tokens >= 1);
  const bool asks = engine.sequences.empty();
  engine.sequences.push_back({.call = call,
                              .prompt_left = call.prompt_tokens,
                              .output_left = call.output_tokens,
                              .due = call.first_token_due});
  if (!asks) return;
  ask(engine);
  if (!computing_) grant(now, Before::kIdle);
}

void CoreEngines::ask(Engine& engine) {
  ledger_.ask(engine.id);
  TimePoint due = engine.sequences.front().due;
  for (const Sequence& one : engine.sequences) due = std::min(due, one.due);
  ledger_.set_due(engine.id, std::max(due, engine.not_due_before));
}

void CoreEngines::grant(TimePoint now, Before before) {
  const auto next = ledger_.next();
  if (!next) return;
  ledger_.begin(*next);
  computing_ = function_of_.at(*next);
  turn_begun_ = now;
  begin_step(now, before);
}

std::size_t CoreEngines::running(const Engine& engine) const {
  return std::min(engine.sequences.size(), static_cast<std::size_t>(options_.max_sequences));
}

// Returns the seconds of the step with its chunks. Only the first chunk may exceed `limit`.
double CoreEngines::plan_chunks(Engine& engine, double seconds, double limit, std::int32_t tokens) {
  bool is_first = true;
  for (std::size_t i = 0; i < running(engine) && tokens > 0; ++i) {
    Sequence& one = engine.sequences[i];
    if (one.prompt_left == 0) continue;
    const std::int32_t wanted = std::min(one.prompt_left, tokens);
    const std::int32_t least = std::min(wanted, kLeastChunk);
    const std::int32_t fits = tokens_within(*engine.times, one.context, wanted, limit - seconds);
    if (fits < least && !is_first) return seconds;
    one.chunk = std::max(fits, least);
    seconds += chunk_seconds(*engine.times, one.context, one.chunk);
    if (one.chunk < wanted) return seconds;
    is_first = false;
    tokens -= one.chunk;
  }
  return seconds;
}

// Returns the seconds of a step beyond those of its rows. REQUIRES: its chunks are planned.
double CoreEngines::extra_seconds(TimePoint now, const Engine& engine, Before before) const {
  if (before == Before::kSame) return 0;
  std::int32_t tokens = 0;
  for (std::size_t i = 0; i < running(engine); ++i) tokens += engine.sequences[i].chunk;
  if (before == Before::kOther) {
    return to_seconds(options_.handover) + engine.times->handover_token_s * tokens;
  }
  return after_rest(options_.rests, rest(now), &RestTime::factor, 1) *
         (to_seconds(options_.wake) + engine.times->wake_token_s * tokens);
}

double CoreEngines::rest(TimePoint now) const {
  if (step_end_) return 0;
  return last_end_ ? to_seconds(now - *last_end_) : std::numeric_limits<double>::infinity();
}

void CoreEngines::begin_step(TimePoint now, Before before) {
  Engine& engine = engines_.at(*computing_);
  std::int32_t decodes = 0;
  for (std::size_t i = 0; i < running(engine); ++i) {
    Sequence& one = engine.sequences[i];
    one.chunk = 0;
    one.decodes = one.prompt_left == 0;
    decodes += one.decodes ? 1 : 0;
  }
  double seconds = engine.times->decode_step_s + engine.times->decode_sequence_s * decodes;
  const Duration longest = ledger_.num_waiting() > 0 ? kSharedTurnStep : kLongestTurnStep;
  const double limit = decodes > 0 ? kStepToDecodes * seconds : to_seconds(longest);
  seconds = plan_chunks(engine, seconds, limit / engine.times->step_margin, kStepTokens - decodes);
  seconds += extra_seconds(now, engine, before);
  step_begun_ = now;
  step_end_ = now + std::max(Duration(1), from_seconds(seconds));
}

void CoreEngines::commit_step(TimePoint now, std::vector<Event>& events) {
  const std::int32_t function = *computing_;
  Engine& engine = engines_.at(function);
  for (std::size_t i = 0; i < running(engine); ++i) {
    Sequence& one = engine.sequences[i];
    one.context += one.chunk + (one.decodes ? 1 : 0);
    one.prompt_left -= one.chunk;
    const bool first = one.chunk > 0 && one.prompt_left == 0;
    one.chunk = 0;
    if (!first && !one.decodes) continue;
    --one.output_left;
    one.due = now + kNextTokenDue;
    if (first || one.output_left == 0) {
      events.push_back({function, one.call.number, first, one.output_left == 0});
    }
  }
  std::erase_if(engine.sequences, [](const Sequence& one) { return one.output_left == 0; });
}

bool CoreEngines::keeps_turn(TimePoint now) const {
  const Engine& engine = engines_.at(*computing_);
  if (engine.sequences.empty()) return false;
  const std::optional<Duration> lead = ledger_.lead(engine.id);
  return !lead || *lead > Duration(0) || now - turn_begun_ < kTurnQuantum;
}

void CoreEngines::disturb(Duration time) {
  CHECK(time >= Duration(0));
  if (step_end_) *step_end_ = *step_end_ + time;
}

void CoreEngines::end_step(TimePoint now, std::vector<Event>& events) {
  CHECK(step_end_ == now);
  step_end_.reset();
  last_end_ = now;
  Engine& engine = engines_.at(*computing_);
  ledger_.set_time(now);
  ledger_.charge(engine.id, now - step_begun_);
  engine.turn_time += now - step_begun_;
  commit_step(now, events);
  if (keeps_turn(now)) return begin_step(now, Before::kSame);
  ledger_.end(engine.id);
  engine.not_due_before = now + kNextTokenDue;
  computing_.reset();
  if (!engine.sequences.empty()) ask(engine);
  grant(now, Before::kOther);
}

Duration CoreEngines::turn_time(std::int32_t function) const {
  const auto found = engines_.find(function);
  return found == engines_.end() ? Duration(0) : found->second.turn_time;
}

}  // namespace sluice
