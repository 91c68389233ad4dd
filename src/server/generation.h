// Generation: one HTTP call that generates. It has n choices for each prompt and one engine request
// per prompt. It turns the results of steps into text and answers, in chunks (SSE) or whole.
//
// A stream's status and headers go out with its first token, so an error before it has a status of
// its own; a stream that has been silent for long before that begins with a comment, which needs
// the headers. A later error ends the stream with an error event instead of [DONE]. A client that
// does not read may leave kMaxUnsentBytes; beyond that the connection is closed and the request
// cancelled.
//
// Owner: Generations. Threads: the event loop's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "http/exchange.h"
#include "request/request.h"
#include "server/access_log.h"
#include "server/answer_writer.h"
#include "server/api_error.h"
#include "server/engine_loop.h"
#include "server/key_quotas.h"
#include "server/prepare_generation.h"
#include "server/response_json.h"
#include "server/server_metrics.h"

namespace sluice {

// Shared, because connection and handler end independently of each other (http/exchange.h).
using ExchangePtr = std::shared_ptr<http::Exchange>;

// The data of an answer that is not streamed. Any thread may turn it into JSON.
struct WholeAnswer {
  AnswerHead head;
  std::vector<ChoiceAnswer> choices;
  Usage usage;
  std::optional<EmbeddingPart> embedding;  // the answer is about vectors
  std::size_t about_bytes = 0;             // of the JSON, roughly

  // The JSON; an error when it is longer than twice kMaxAnswerBytes.
  ApiResult<std::string> json() const;
};

// The objects that every generation uses.
struct GenerationContext {
  const Tokenizer& tokenizer;
  EngineLoop& engine;
  const Clock& clock;
  ServerMetrics& metrics;
};

// The latencies that one event adds.
struct TokenTiming {
  std::optional<Duration> ttft;  // the call's first token
  std::optional<Duration> tbt;   // since the choice's token before
};

class Generation {
 public:
  static constexpr std::size_t kMaxUnsentBytes = std::size_t{1} << 20;

  // `record`: has the request's part of the access log's line. The engine's ids of the prompts are
  // first_id, first_id + 1, ... `lease`: the call's place in the limits of its key.
  // REQUIRES: the context's objects outlive it.
  Generation(ExchangePtr exchange, PreparedGeneration prepared, AnswerHead head,
             const GenerationContext& context, RequestId first_id, AccessRecord record,
             KeyQuotas::Lease lease = {});
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // The engine's request for a prompt; once for each.
  Request make_request(std::size_t prompt, std::string client_key);
  std::size_t num_prompts() const;
  // Answers with the tokens of an earlier server, if there are any: once, after the engine has
  // taken the request; flush() follows.
  void replay();
  // The answer so far, for a later server. Absent: there is nothing to save.
  std::optional<ResumeStore::Answer> unfinished_answer() const;
  const std::optional<ResumeStore::Key>& resume_key() const { return resume_; }
  // The answer of an earlier server has come to its end.
  bool resumed_is_complete() const { return was_resumed_ && unfinished_choices_ == 0; }
  RequestId first_id() const { return first_id_; }
  ApiKind kind() const { return head_.kind; }
  const std::string& client() const { return record_.client; }
  TimePoint received() const { return exchange_->request().received; }
  std::optional<Duration> ttft() const { return record_.ttft; }
  // When the call ends if it is not answered before; absent: never.
  std::optional<TimePoint> deadline() const;

  // Runs once, from the loop, when the client is gone.
  void on_close(std::function<void(http::CloseReason)> task) {
    exchange_->on_close(std::move(task));
  }

  // One event of the engine; flush() follows when the batch is through.
  TokenTiming take(const OutputEvent& event, std::span<const TokenId> tokens,
                   std::span<const TokenLogprob> logprobs,
                   std::span<const PromptLogprob> prompt_logprobs = {},
                   std::span<const float> embedding = {});
  // The pin that the call has made; before the event that ends it.
  void take_pin(PinStatus pin) { pin_ = std::move(pin); }
  void flush();
  // After flush(): an answer that is too long to become JSON on the event loop. The caller makes
  // the JSON on a worker and then calls answer().
  std::optional<WholeAnswer> take_long_answer() { return std::exchange(long_answer_, {}); }
  void answer(ApiResult<std::string> json, int status = 200);
  // An upper bound of the text and log-probabilities that it holds until the answer is made.
  std::size_t held_bytes() const { return held_bytes_; }
  // True once the call is finished.
  // Shared with a worker that makes the answer, which may end after the generation.
  std::shared_ptr<const std::atomic<bool>> finished_flag() const { return finished_flag_; }

  // Writes a comment into the stream if it has sent nothing for `silence`, so that proxies between
  // server and client keep the connection. Answers that are not streams get none.
  void keep_alive(TimePoint now, Duration silence);

  // Ends the call with an error, unless it is finished.
  void fail(const ApiError& error);
  // The same when the engine has not taken the requests from prompt `first_refused` on: they are
  // neither cancelled nor counted.
  void refuse(const ApiError& error, std::size_t first_refused);
  // The deadline is over: 504, or an error event.
  void end_late();
  // The client is gone.
  void close(http::CloseReason reason);

  // Nothing more will come; the record is complete.
  bool finished() const { return finished_; }
  const AccessRecord& record() const { return record_; }

 private:
  struct Choice;
  struct Prompt;

  std::string_view key_name() const;  // empty: no key was needed
  TokenTiming time_tokens(Prompt& prompt, Choice& choice, const OutputEvent& event);
  void measure_end(const Prompt& prompt, const Choice& choice, FinishReason reason);
  void take_tokens(Prompt& prompt, Choice& choice, std::span<const TokenId> tokens,
                   std::span<const TokenLogprob> logprobs, FinishReason finish);
  void append_logprobs(const Prompt& prompt, Choice& choice, std::size_t tokens,
                       std::span<const TokenLogprob> logprobs);
  void end_choice(Choice& choice, FinishReason reason);
  void add_echo(const Prompt& prompt, Choice& choice) const;
  PromptLogprobList prompt_logprob_list(const Prompt& prompt) const;
  void append_chunk(const Prompt& prompt, Choice& choice, TimePoint committed);
  void begin_stream();
  void finish_stream();
  void answer_pin();
  WholeAnswer whole_answer();
  LogprobList logprob_list(const Prompt& prompt, const Choice& choice) const;
  void write(std::string_view bytes);
  void write_pending();
  void measure_delivery();
  void finish();
  // Cancels the unfinished requests in the engine.
  void cancel_requests(FinishReason reason);
  Usage usage() const;

  ExchangePtr exchange_;
  GenerationCall call_;
  const ToolFormat* const tool_format_;
  const ToolParameters tool_parameters_;
  const SharedAdapter adapter_;  // null: the base model
  const std::int32_t function_;  // Request::function
  const Pooling pooling_;
  AnswerHead head_;
  const std::unique_ptr<AnswerWriter> writer_;
  const GenerationContext context_;
  const RequestId first_id_;
  AccessRecord record_;
  const KeyQuotas::Lease lease_;

  const std::optional<ResumeStore::Key> resume_;
  std::vector<TokenId> said_;  // with `resume_`: the tokens of the answer
  const bool was_resumed_;     // an earlier server has made some of them

  std::vector<Prompt> prompts_;
  std::size_t unfinished_choices_ = 0;
  bool streaming_ = false;  // headers are out
  TimePoint last_write_;    // to the stream; before its first: when the call began
  bool finished_ = false;
  bool answering_ = false;  // a worker makes the answer
  // Shared, see finished_flag().
  std::shared_ptr<std::atomic<bool>> finished_flag_ = std::make_shared<std::atomic<bool>>(false);
  const std::size_t held_bytes_;
  std::optional<PinStatus> pin_;
  std::optional<WholeAnswer> long_answer_;
  std::string pending_;                     // bytes of this batch
  std::vector<TimePoint> pending_commits_;  // of the steps that gave the chunks in them
};

}  // namespace sluice
