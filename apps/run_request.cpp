#include "apps/run_request.h"

#include <cstdio>
#include <utility>

#include "apps/interrupt.h"
#include "front/text_stream.h"

namespace sluice {
namespace {

using TextSink = FunctionRef<void(std::int32_t, std::string_view)>;

// Takes the engine's outputs for one request.
class Recorder {
 public:
  Recorder(Engine& engine, RequestId id, TextSink on_text)
      : engine_(engine), id_(id), on_text_(on_text) {}

  Status start(const Request& request, const Tokenizer* tokenizer, OutputText output_text) {
    std::span<const TokenId> before;
    if (output_text == OutputText::kContinuesPrompt) before = request.prompt;
    record.choices.resize(static_cast<std::size_t>(request.sampling.n));
    for (std::int32_t i = 0; i < request.sampling.n; ++i) {
      ASSIGN_OR_RETURN(TextStream stream, TextStream::create(tokenizer, request.sampling, before));
      streams_.push_back(std::move(stream));
    }
    stopped_.resize(record.choices.size(), false);
    return {};
  }

  void take(const ChoiceOutput& output) {
    const auto index = static_cast<std::size_t>(output.choice);
    ChoiceRecord& choice = record.choices[index];
    std::string text;
    // Tokens that were computed after the end of a stop string are dropped.
    if (!stopped_[index]) {
      const TextStream::Taken taken =
          streams_[index].push(output.tokens, text, output.finish_reason);
      const auto tokens = output.tokens.first(taken.tokens);
      const std::size_t per_token =
          output.tokens.empty() ? 0 : output.logprobs.size() / output.tokens.size();
      const auto logprobs = output.logprobs.first(per_token * taken.tokens);
      choice.tokens.insert(choice.tokens.end(), tokens.begin(), tokens.end());
      choice.logprobs.insert(choice.logprobs.end(), logprobs.begin(), logprobs.end());
      stopped_[index] = taken.stopped;
      if (stopped_[index] && output.finish_reason == FinishReason::kNone) {
        engine_.end_choice(id_, output.choice, FinishReason::kStop);
      }
    }
    if (output.finish_reason != FinishReason::kNone) {
      choice.finish_reason = stopped_[index] ? FinishReason::kStop : output.finish_reason;
      streams_[index].finish(text);
    }
    choice.text += text;
    if (!text.empty()) on_text_(output.choice, text);
  }

  GenerationRecord record;

 private:
  Engine& engine_;
  RequestId id_;
  TextSink on_text_;
  std::vector<TextStream> streams_;
  std::vector<bool> stopped_;
};

// One line a second while the prompt is computed.
class PromptProgress {
 public:
  PromptProgress(Progress mode, const Engine& engine, RequestId id, std::size_t prompt_len,
                 TimePoint start)
      : mode_(mode), engine_(engine), id_(id), prompt_len_(prompt_len), last_(start) {}

  void report(TimePoint now) {
    if (mode_ == Progress::kQuiet || now - last_ < std::chrono::seconds(1)) return;
    last_ = now;
    std::fprintf(stderr, "prompt: %d of %zu tokens\n", engine_.computed_tokens(id_), prompt_len_);
  }

 private:
  Progress mode_;
  const Engine& engine_;
  RequestId id_;
  std::size_t prompt_len_;
  TimePoint last_;
};

}  // namespace

Result<GenerationRecord> run_request(Engine& engine, Request request, const Tokenizer* tokenizer,
                                     const Clock& clock, Progress progress, OutputText output_text,
                                     TextSink on_text) {
  const RequestId id = request.id;
  const TimePoint start = clock.now();
  Recorder recorder(engine, id, on_text);
  RETURN_IF_ERROR(recorder.start(request, tokenizer, output_text));
  PromptProgress prompt(progress, engine, id, request.prompt.size(), start);
  RETURN_IF_ERROR(engine.add_request(std::move(request)));
  bool any_token = false;
  while (engine.has_work()) {
    if (interrupted() && !recorder.record.interrupted) {
      recorder.record.interrupted = true;
      engine.cancel(id);
    }
    ASSIGN_OR_RETURN(const auto outputs, engine.step());
    const TimePoint now = clock.now();
    if (!any_token) prompt.report(now);
    for (const ChoiceOutput& output : outputs) {
      if (!any_token && !output.tokens.empty()) recorder.record.first_token = now - start;
      any_token |= !output.tokens.empty();
      if (output.choice == 0) recorder.record.cached_tokens = output.cached_prompt_tokens;
      recorder.take(output);
    }
  }
  recorder.record.total = clock.now() - start;
  return std::move(recorder.record);
}

}  // namespace sluice
