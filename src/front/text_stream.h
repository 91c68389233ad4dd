// TextStream: turns the tokens of one choice into text and decides stop strings. Text comes out as
// soon as it is certain, in whole characters. The first SamplingParams::min_tokens tokens complete
// no stop string. Without a tokenizer there is no text.
// Owner: the code that runs the request. One thread at a time. The tokenizer must outlive it.
// Cost: create() reads the whole prompt, so a server calls it on a worker and copies it for the
// other choices; push() is a few hundred nanoseconds a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "request/finish_reason.h"
#include "request/sampling_params.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

class TextStream {
 public:
  // The text continues `prompt`: decode(prompt + output) equals decode(prompt) followed by the
  // stream's text. With an empty prompt the stream's text is decode(output). Use an empty prompt
  // for a chat's answer: SentencePiece models begin an answer with a space that is not part of it.
  // `tokenizer` may be null.
  static Result<TextStream> create(const Tokenizer* tokenizer, const SamplingParams& sampling,
                                   std::span<const TokenId> prompt,
                                   SkipSpecialTokens skip = SkipSpecialTokens::kYes);

  struct Taken {
    std::size_t tokens = 0;  // without tokens after the end of a stop string
    bool stopped = false;    // a stop string is complete: the stream is over
  };
  // Appends to `out` the text that is certain after these tokens. `finish`: how the sequence ended
  // with the last token. With kStop the last token is the stop token; its text is left out, unless
  // include_stop_str_in_output is set.
  Taken push(std::span<const TokenId> tokens, std::string& out,
             FinishReason finish = FinishReason::kNone);
  // Also appends, for each token taken, where its text begins in the choice's text, in code points.
  Taken push(std::span<const TokenId> tokens, std::string& out, std::vector<std::int64_t>& offsets,
             FinishReason finish = FinishReason::kNone);
  // The tokens ended without a stop string: appends the text that was held back.
  void finish(std::string& out);

  // Which of SamplingParams::stop ended the stream, by its index.
  std::optional<std::size_t> stopped_by() const { return stops_.stopped_by(); }

 private:
  TextStream(const Tokenizer* tokenizer, StopMatcher stops, const SamplingParams& sampling,
             std::span<const TokenId> prompt, SkipSpecialTokens skip);
  Taken take(std::span<const TokenId> tokens, std::string& out, std::vector<std::int64_t>* offsets,
             FinishReason finish);

  std::optional<StreamingDetokenizer> detokenizer_;
  StopMatcher stops_;
  std::int32_t before_stops_;  // tokens to come that complete no stop string
  bool includes_stop_;
  std::string decoded_;
  std::int64_t code_points_ = 0;  // decoded so far, held back or not
};

}  // namespace sluice
