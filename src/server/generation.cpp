#include "server/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "base/utf8.h"
#include "server/answer_size.h"
#include "server/answer_text.h"
#include "server/embedding_json.h"
#include "server/error_response.h"
#include "server/logprob_lists.h"
#include "server/pin_call.h"

namespace sluice {
namespace {

// A longer answer becomes JSON on a worker: this much takes about 0.2 ms.
constexpr std::size_t kMaxJsonOnLoop = 64 << 10;
constexpr std::size_t kJsonPerLogprob = 96;  // of an ordinary token
constexpr std::size_t kJsonPerFloat = 13;

}  // namespace

struct Generation::Choice {
  explicit Choice(TextStream text_stream) : stream(std::move(text_stream)) {}

  AnswerText stream;
  std::int32_t index = 0;   // in the answer
  std::int32_t number = 0;  // the engine's, of its request
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<std::string> stop_reason;
  bool started = false;  // its first chunk has been made
  std::int32_t output_tokens = 0;
  TimePoint first_scheduled;
  TimePoint first_token;
  TimePoint last_token;
  // Since the last chunk; of the whole answer when it is not streamed.
  AnswerParts parts;
  std::vector<TokenId> tokens;
  std::vector<std::int64_t> offsets;          // of each token's text, of the last step
  std::vector<float> embedding;               // kEmbedding
  std::vector<TokenLogprob> logprobs;         // 1 + SamplingParams::logprobs for each token
  std::vector<std::int64_t> logprob_offsets;  // of the tokens that `logprobs` holds
  // `logprobs` begins with the echoed prompt, whose first token has no log-probability.
  bool begins_with_prompt = false;
};

struct Generation::Prompt {
  PreparedPrompt prompt;  // its ids stay here when the answer repeats them
  SamplingParams sampling;
  RequestId id = 0;
  std::string echo;
  std::int64_t echo_length = 0;  // code points
  std::vector<std::int64_t> echo_offsets;
  // 1 + SamplingParams::prompt_logprobs for each token but the first.
  std::vector<PromptLogprob> scores;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int32_t unfinished = 0;
  bool any_token = false;
  std::vector<Choice> choices;
};

Generation::Generation(ExchangePtr exchange, PreparedGeneration prepared, AnswerHead head,
                       const GenerationContext& context, RequestId first_id, AccessRecord record,
                       KeyQuotas::Lease lease)
    : exchange_(std::move(exchange)),
      call_(std::move(prepared.call)),
      tool_format_(prepared.tool_format),
      tool_parameters_(std::move(prepared.tool_parameters)),
      adapter_(std::move(prepared.adapter)),
      function_(prepared.function),
      pooling_(prepared.pooling),
      head_(std::move(head)),
      writer_(make_answer_writer(head_, call_.include_usage)),
      context_(context),
      first_id_(first_id),
      record_(std::move(record)),
      lease_(std::move(lease)),
      resume_(std::move(prepared.resume)),
      said_(std::move(prepared.resumed)),
      was_resumed_(!said_.empty()),
      last_write_(context.clock.now()),
      held_bytes_(prepared.held_bytes) {
  for (PromptPart& part : prepared.parts) {
    Prompt prompt;
    prompt.id = first_id + prompts_.size();
    prompt.prompt = std::move(part.prompt);
    prompt.sampling = std::move(part.sampling);
    prompt.echo = std::move(part.echo);
    prompt.echo_offsets = std::move(part.echo_offsets);
    prompt.echo_length = utf8::count_code_points(prompt.echo);
    prompt.prompt_tokens = static_cast<std::int64_t>(prompt.prompt.ids.size());
    record_.prompt_tokens += prompt.prompt_tokens;
    for (TextStream& stream : part.streams) {
      Choice choice(std::move(stream));
      if (part.reasoning != nullptr) {
        choice.stream.read_reasoning(*part.reasoning, part.begins_inside_reasoning);
      }
      if (tool_format_ != nullptr) choice.stream.read_calls(*tool_format_, tool_parameters_);
      choice.index = static_cast<std::int32_t>(unfinished_choices_++);
      choice.number = static_cast<std::int32_t>(prompt.choices.size());
      prompt.choices.push_back(std::move(choice));
    }
    prompt.unfinished = static_cast<std::int32_t>(prompt.choices.size());
    prompts_.push_back(std::move(prompt));
  }
}

Generation::~Generation() = default;

std::size_t Generation::num_prompts() const { return prompts_.size(); }

Request Generation::make_request(std::size_t index, std::string client_key) {
  Prompt& prompt = prompts_[index];
  Request request;
  request.id = prompt.id;
  const bool scored = prompt.sampling.prompt_logprobs >= 0;
  if (call_.return_token_ids || scored) {
    request.prompt = prompt.prompt.ids;
  } else {
    request.prompt = std::move(prompt.prompt.ids);
  }
  request.resumed = said_;
  request.sampling = prompt.sampling;
  request.pooling = pooling_;
  request.arrival = received();
  request.priority = call_.priority;
  request.deadline = deadline();
  request.client_key = std::move(client_key);
  request.client_weight = lease_.weight();
  if (adapter_ != nullptr) {
    request.adapter = adapter_->content->index;
    request.adapter_content = adapter_->content;
  }
  request.function = function_;
  if (call_.pin) request.pin = std::make_shared<const PinOrder>(*call_.pin);  // shared by copies
  request.block_hashes = std::move(prompt.prompt.block_hashes);
  request.block_owner = {prompt.prompt.block_hash_root, call_.kv_memory_only};
  if (!scored && pooling_ != Pooling::kMean) {
    request.block_hash_root = prompt.prompt.block_hash_root;
  }
  return request;
}

// These tokens are in no latency and no rate: another process has made them.
void Generation::replay() {
  if (said_.empty() || finished_) return;
  Prompt& prompt = prompts_.front();
  Choice& choice = prompt.choices.front();
  const TimePoint now = context_.clock.now();
  prompt.any_token = true;
  record_.ttft = now - received();
  choice.first_scheduled = choice.first_token = choice.last_token = now;
  choice.output_tokens = static_cast<std::int32_t>(said_.size());
  take_tokens(prompt, choice, said_, {}, FinishReason::kNone);
  if (choice.finish_reason != FinishReason::kNone) --prompt.unfinished;
  if (call_.stream) append_chunk(prompt, choice, now);
}

std::optional<ResumeStore::Answer> Generation::unfinished_answer() const {
  if (!resume_ || finished_ || said_.empty() || unfinished_choices_ == 0) return std::nullopt;
  return ResumeStore::Answer{prompts_.front().sampling.seed, said_};
}

TokenTiming Generation::take(const OutputEvent& event, std::span<const TokenId> tokens,
                             std::span<const TokenLogprob> logprobs,
                             std::span<const PromptLogprob> prompt_logprobs,
                             std::span<const float> embedding) {
  TokenTiming timing;
  if (finished_) return timing;
  Prompt& prompt = prompts_[event.request - first_id_];
  Choice& choice = prompt.choices[static_cast<std::size_t>(event.choice)];
  // After the end of a stop string, which the engine did not know yet.
  if (choice.finish_reason != FinishReason::kNone) return timing;
  if (is_failure(event.finish_reason)) {
    fail(to_api_error(failure_of(event.finish_reason)));
    return timing;
  }
  if (event.finish_reason == FinishReason::kCancelled) {
    fail(to_api_error(unavailable("the engine is stopping")));
    return timing;
  }
  prompt.scores.insert(prompt.scores.end(), prompt_logprobs.begin(), prompt_logprobs.end());
  if (tokens.empty() && event.finish_reason == FinishReason::kNone) return timing;
  if (call_.kind == ApiKind::kEmbedding) {
    if (embedding.empty()) {
      fail(to_api_error(internal_error("the engine gave no vector")));
      return timing;
    }
    choice.embedding.assign(embedding.begin(), embedding.end());
  }
  if (call_.prompt_only) tokens = {};
  // The other choices find the first choice's blocks, which is no cache hit of the prompt.
  if (event.choice == 0) prompt.cached_tokens = event.cached_prompt_tokens;
  if (!tokens.empty()) {
    timing = time_tokens(prompt, choice, event);
    if (resume_) said_.insert(said_.end(), tokens.begin(), tokens.end());
    take_tokens(prompt, choice, tokens, logprobs, event.finish_reason);
  }
  if (event.finish_reason != FinishReason::kNone && choice.finish_reason == FinishReason::kNone) {
    choice.stream.finish(/*stopped=*/false, event.finish_reason, choice.parts);
    end_choice(choice, call_.prompt_only ? FinishReason::kLength : event.finish_reason);
  }
  if (choice.finish_reason != FinishReason::kNone) {
    --prompt.unfinished;
    measure_end(prompt, choice, choice.finish_reason);
  }
  if (call_.stream) append_chunk(prompt, choice, event.time);
  return timing;
}

TokenTiming Generation::time_tokens(Prompt& prompt, Choice& choice, const OutputEvent& event) {
  TokenTiming timing;
  if (!record_.ttft) {
    record_.ttft = context_.clock.now() - received();
    timing.ttft = record_.ttft;
  }
  if (!prompt.any_token) {
    prompt.any_token = true;
    context_.metrics.first_token(
        {static_cast<std::int32_t>(prompt.prompt_tokens), received(), event.time, key_name()});
  }
  if (choice.output_tokens > 0) {
    timing.tbt = event.time - choice.last_token;
  } else {
    choice.first_token = event.time;
    choice.first_scheduled = event.first_scheduled;
  }
  choice.last_token = event.time;
  choice.output_tokens += static_cast<std::int32_t>(event.num_tokens);
  context_.metrics.tokens(event.num_tokens, timing.tbt);
  lease_.take_output(event.num_tokens);
  return timing;
}

void Generation::measure_end(const Prompt& prompt, const Choice& choice, FinishReason reason) {
  RequestTimes times;
  times.reason = reason;
  times.prompt_tokens = static_cast<std::int32_t>(prompt.prompt_tokens);
  times.output_tokens = choice.output_tokens;
  times.arrival = received();
  times.first_scheduled = choice.first_scheduled;
  times.first_token = choice.first_token;
  times.last_token = choice.last_token;
  times.end = context_.clock.now();
  if (adapter_ != nullptr) times.adapter = adapter_->name;
  times.key = key_name();
  context_.metrics.choice_finished(times);
}

void Generation::take_tokens(Prompt& prompt, Choice& choice, std::span<const TokenId> tokens,
                             std::span<const TokenLogprob> logprobs, FinishReason finish) {
  choice.offsets.clear();
  const TextStream::Taken taken = choice.stream.push(tokens, finish, choice.parts, choice.offsets);
  record_.completion_tokens += static_cast<std::int64_t>(taken.tokens);
  if (call_.return_token_ids) {
    const auto kept = tokens.first(taken.tokens);
    choice.tokens.insert(choice.tokens.end(), kept.begin(), kept.end());
  }
  if (prompt.sampling.logprobs >= 0) append_logprobs(prompt, choice, taken.tokens, logprobs);
  if (!taken.stopped) return;
  const auto which = choice.stream.stopped_by();
  CHECK(which.has_value());
  choice.stream.finish(/*stopped=*/true, FinishReason::kStop, choice.parts);
  choice.stop_reason = prompt.sampling.stop[*which];
  end_choice(choice, FinishReason::kStop);
  context_.engine.end_choice(prompt.id, choice.number, FinishReason::kStop);
}

void Generation::append_logprobs(const Prompt& prompt, Choice& choice, std::size_t tokens,
                                 std::span<const TokenLogprob> logprobs) {
  const auto per_token = static_cast<std::size_t>(1 + prompt.sampling.logprobs);
  CHECK(logprobs.size() >= tokens * per_token);
  const auto kept = logprobs.first(tokens * per_token);
  choice.logprobs.insert(choice.logprobs.end(), kept.begin(), kept.end());
  for (std::size_t i = 0; i < tokens; ++i) {
    choice.logprob_offsets.push_back(prompt.echo_length + choice.offsets[i]);
  }
}

void Generation::end_choice(Choice& choice, FinishReason reason) {
  choice.finish_reason = reason;
  --unfinished_choices_;
  if (record_.finish_reason.empty()) record_.finish_reason = finish_reason_name(reason);
}

// Puts the prompt in front of a choice that has not been sent yet.
void Generation::add_echo(const Prompt& prompt, Choice& choice) const {
  choice.parts.content.insert(0, prompt.echo);
  if (prompt.echo_offsets.empty()) return;
  const std::vector<TokenId>& ids = prompt.prompt.ids;
  const auto per_token = static_cast<std::size_t>(1 + prompt.sampling.logprobs);
  const auto per_score = static_cast<std::size_t>(1 + prompt.sampling.prompt_logprobs);
  CHECK(per_score >= per_token && prompt.scores.size() == (ids.size() - 1) * per_score);
  std::vector<TokenLogprob> entries(per_token, TokenLogprob{ids.front(), 0.0F});
  entries.reserve(ids.size() * per_token + choice.logprobs.size());
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    for (std::size_t k = 0; k < per_token; ++k) {
      const PromptLogprob& score = prompt.scores[i * per_score + k];
      entries.push_back({score.token, score.logprob});
    }
  }
  choice.logprobs.insert(choice.logprobs.begin(), entries.begin(), entries.end());
  choice.logprob_offsets.insert(choice.logprob_offsets.begin(), prompt.echo_offsets.begin(),
                                prompt.echo_offsets.end());
  choice.begins_with_prompt = true;
}

PromptLogprobList Generation::prompt_logprob_list(const Prompt& prompt) const {
  const auto per_score = static_cast<std::size_t>(1 + prompt.sampling.prompt_logprobs);
  const auto shown = static_cast<std::size_t>(1 + call_.prompt_logprobs);
  CHECK(prompt.scores.size() == (prompt.prompt.ids.size() - 1) * per_score);
  return make_prompt_logprob_list(context_.tokenizer, prompt.scores, per_score, shown,
                                  prompt.prompt.ids.size());
}

// Text that is held back takes its log-probabilities with it. Tokens that the client asked for do
// not wait for text.
void Generation::append_chunk(const Prompt& prompt, Choice& choice, TimePoint committed) {
  const bool ended = choice.finish_reason != FinishReason::kNone;
  if (choice.parts.empty() && choice.tokens.empty() && !ended && choice.started) return;
  if (!streaming_) begin_stream();
  ChunkPart part;
  part.index = choice.index;
  part.first = !choice.started;
  if (part.first && call_.echo) add_echo(prompt, choice);
  part.text = choice.parts.content;
  part.reasoning = choice.parts.reasoning;
  part.tool_calls = choice.parts.calls;
  part.called_tools = choice.stream.any_call();
  part.finish_reason = choice.finish_reason;
  part.stop_reason = choice.stop_reason;
  LogprobList logprobs;
  if (prompt.sampling.logprobs >= 0) {
    logprobs = logprob_list(prompt, choice);
    part.logprobs = &logprobs;
  }
  part.token_ids = choice.tokens;
  if (part.first && call_.return_token_ids) part.prompt_token_ids = &prompt.prompt.ids;
  const Usage so_far = usage();
  if (call_.continuous_usage_stats) part.usage = &so_far;
  writer_->append_chunk(part, so_far, pending_);
  pending_commits_.push_back(committed);
  choice.started = true;
  choice.parts.clear();
  choice.tokens.clear();
  choice.logprobs.clear();
  choice.logprob_offsets.clear();
  choice.begins_with_prompt = false;
}

LogprobList Generation::logprob_list(const Prompt& prompt, const Choice& choice) const {
  const LogprobShape shape{static_cast<std::size_t>(1 + prompt.sampling.logprobs),
                           choice.begins_with_prompt};
  return make_logprob_list(context_.tokenizer, shape, choice.logprobs, choice.logprob_offsets);
}

void Generation::begin_stream() {
  streaming_ = true;
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"},
                  {"X-Accel-Buffering", "no"},  // proxies: pass each event on at once
                  {"X-Request-Id", record_.request_id}};
  record_.status = head.status;
  exchange_->begin_stream(std::move(head));
}

void Generation::flush() {
  if (finished_ || answering_) return;
  if (unfinished_choices_ > 0) {
    write_pending();
    return;
  }
  if (call_.stream) {
    finish_stream();
    return finish();
  }
  if (call_.pin) return answer_pin();
  WholeAnswer answer = whole_answer();
  if (answer.about_bytes <= kMaxJsonOnLoop) return this->answer(answer.json());
  answering_ = true;
  long_answer_ = std::move(answer);
}

void Generation::answer_pin() {
  if (!pin_) return fail(to_api_error(internal_error("the engine has made no pin")));
  answer(pin_json(*pin_, context_.clock.now(), unix_seconds()), pin_->is_new ? 201 : 200);
}

void Generation::write(std::string_view bytes) {
  record_.bytes += static_cast<std::int64_t>(bytes.size());
  last_write_ = context_.clock.now();
  exchange_->write(bytes);
}

void Generation::keep_alive(TimePoint now, Duration silence) {
  if (!call_.stream || finished_ || now - last_write_ < silence) return;
  // A client that does not read has bytes to come anyway.
  if (streaming_ && exchange_->unsent_bytes() > 0) return;
  if (!streaming_) begin_stream();
  write(": keep-alive\n\n");
}

void Generation::write_pending() {
  if (pending_.empty()) return;
  write(pending_);
  measure_delivery();
  pending_.clear();
  if (exchange_->unsent_bytes() <= kMaxUnsentBytes) return;
  log_warning(fmt::format("{}: {} leaves {} bytes of its stream unread; closing its connection",
                          record_.request_id, record_.peer, exchange_->unsent_bytes()));
  record_.close_reason = "slow_reader";
  cancel_requests(FinishReason::kCancelled);
  exchange_->abort();
  finish();
}

void Generation::finish_stream() {
  writer_->append_end(usage(), pending_);
  write(pending_);
  exchange_->end_stream();
  measure_delivery();
}

void Generation::measure_delivery() {
  const TimePoint now = context_.clock.now();
  for (const TimePoint committed : pending_commits_) {
    context_.metrics.tokens_delivered(now - committed);
  }
  pending_commits_.clear();
}

WholeAnswer Generation::whole_answer() {
  WholeAnswer whole;
  whole.head = head_;
  whole.usage = usage();
  if (call_.kind == ApiKind::kEmbedding) whole.embedding = std::move(call_.embedding);
  for (Prompt& prompt : prompts_) {
    for (Choice& choice : prompt.choices) {
      if (call_.echo) add_echo(prompt, choice);
      ChoiceAnswer answer;
      answer.index = choice.index;
      answer.text = std::move(choice.parts.content);
      answer.reasoning = std::move(choice.parts.reasoning);
      answer.tool_calls = std::move(choice.parts.calls);
      whole.about_bytes +=
          answer.text.size() + answer.reasoning.size() + kJsonPerLogprob * choice.logprobs.size();
      answer.embedding = std::move(choice.embedding);
      whole.about_bytes += kJsonPerFloat * answer.embedding.size();
      answer.finish_reason = choice.finish_reason;
      answer.stop_reason = std::move(choice.stop_reason);
      if (prompt.sampling.logprobs >= 0) {
        const LogprobShape shape{static_cast<std::size_t>(1 + prompt.sampling.logprobs),
                                 choice.begins_with_prompt};
        answer.logprobs =
            owning_logprob_list(context_.tokenizer, shape, std::exchange(choice.logprobs, {}),
                                std::exchange(choice.logprob_offsets, {}));
      }
      if (call_.prompt_logprobs >= 0) {
        answer.prompt_logprobs = prompt_logprob_list(prompt);
        whole.about_bytes += kJsonPerLogprob * prompt.scores.size();
      }
      if (call_.return_token_ids) {
        answer.token_ids = std::move(choice.tokens);
        answer.prompt_token_ids = prompt.prompt.ids;
        whole.about_bytes += 8 * (answer.token_ids->size() + prompt.prompt.ids.size());
      }
      whole.choices.push_back(std::move(answer));
    }
  }
  return whole;
}

ApiResult<std::string> WholeAnswer::json() const {
  if (answer_json_bound(head.kind, choices) > 2 * kMaxAnswerBytes) {
    return tl::unexpected(to_api_error(internal_error(fmt::format(
        "the answer is longer than {} MiB; lower n, max_tokens or the number of log-probabilities, "
        "or set \"stream\": true",
        2 * kMaxAnswerBytes >> 20))));
  }
  if (!embedding) return whole_answer_json(head, choices, usage);
  std::vector<std::vector<float>> vectors;
  for (const ChoiceAnswer& choice : choices) vectors.push_back(choice.embedding);
  return embedding_answer_json(head, *embedding, embedding->normalize.value_or(true), vectors,
                               usage);
}

void Generation::answer(ApiResult<std::string> json, int status) {
  if (!json) return fail(json.error());
  http::Response response;
  response.status = status;
  response.headers = {{"X-Request-Id", record_.request_id}};
  response.body = *std::move(json);
  record_.status = response.status;
  record_.bytes = static_cast<std::int64_t>(response.body.size());
  exchange_->respond(std::move(response));
  finish();
}

void Generation::fail(const ApiError& error) {
  if (finished_) return;
  if (error.status == http_status(ErrorCode::kInternal)) {
    log_error(fmt::format("{} ends with an error: {}", record_.request_id, error.message));
  }
  cancel_requests(FinishReason::kError);
  if (streaming_) {
    writer_->append_error(error, pending_);
    record_.close_reason = "error";
    write(pending_);
    exchange_->end_stream();
  } else {
    http::Response response = error_response(error, record_.request_id, head_.dialect);
    record_.status = error.status;
    record_.bytes = static_cast<std::int64_t>(response.body.size());
    exchange_->respond(std::move(response));
  }
  finish();
}

void Generation::refuse(const ApiError& error, std::size_t first_refused) {
  for (std::size_t i = first_refused; i < prompts_.size(); ++i) prompts_[i].unfinished = 0;
  fail(error);
}

std::string_view Generation::key_name() const {
  return lease_ ? std::string_view(lease_.name()) : std::string_view();
}

std::optional<TimePoint> Generation::deadline() const {
  if (!call_.timeout) return std::nullopt;
  return received() + *call_.timeout;
}

void Generation::end_late() {
  fail(to_api_error(Error{ErrorCode::kDeadlineExceeded,
                          fmt::format("the answer was not complete after {:g} s (timeout)",
                                      to_seconds(*call_.timeout))}));
}

void Generation::close(http::CloseReason reason) {
  if (finished_) return;
  cancel_requests(FinishReason::kCancelled);
  if (!streaming_) record_.status = kStatusClientGone;
  record_.close_reason = close_reason_name(reason);
  finish();
}

void Generation::finish() {
  finished_ = true;
  finished_flag_->store(true, std::memory_order_relaxed);
  pending_.clear();
  record_.total = context_.clock.now() - received();
  for (const Prompt& prompt : prompts_) record_.cached_tokens += prompt.cached_tokens;
}

void Generation::cancel_requests(FinishReason reason) {
  record_.finish_reason = finish_reason_name(reason);
  for (const Prompt& prompt : prompts_) {
    if (prompt.unfinished == 0) continue;
    context_.engine.cancel(prompt.id);
    for (const Choice& choice : prompt.choices) {
      if (choice.finish_reason == FinishReason::kNone) measure_end(prompt, choice, reason);
    }
  }
}

Usage Generation::usage() const {
  Usage usage;
  usage.completion_tokens = record_.completion_tokens;
  for (const Prompt& prompt : prompts_) {
    usage.prompt_tokens += prompt.prompt_tokens;
    usage.cached_tokens += prompt.cached_tokens;
    for (const Choice& choice : prompt.choices) {
      if (const auto count = choice.stream.reasoning_tokens()) {
        usage.reasoning_tokens = usage.reasoning_tokens.value_or(0) + *count;
      }
    }
  }
  return usage;
}

}  // namespace sluice
