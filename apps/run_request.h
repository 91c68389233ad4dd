// Runs one request on an engine to its end: steps, streamed text, stop strings, SIGINT.
// Owner: a command. Threads: the engine's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "engine/engine.h"
#include "request/request.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

struct ChoiceRecord {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<TokenLogprob> logprobs;  // per token 1 + SamplingParams::logprobs
  FinishReason finish_reason = FinishReason::kNone;
};

struct GenerationRecord {
  std::vector<ChoiceRecord> choices;
  Duration first_token{0};  // since the engine received the request
  Duration total{0};
  std::int32_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  bool interrupted = false;
};

// `on_text` gets choice and new text. If `tokenizer` is null there is no text. With
// Progress::kReport, the progress of a long prompt is written to stderr each second.
enum class Progress : std::uint8_t { kQuiet, kReport };
// How the text of the output relates to the prompt (TextStream::create()).
enum class OutputText : std::uint8_t { kContinuesPrompt, kStandsAlone };
Result<GenerationRecord> run_request(Engine& engine, Request request, const Tokenizer* tokenizer,
                                     const Clock& clock, Progress progress, OutputText output_text,
                                     FunctionRef<void(std::int32_t, std::string_view)> on_text);

}  // namespace sluice
