// TextStream: one choice's tokens as text, with stop strings decided: text comes out as soon as it
// is certain, whole characters only. Without a tokenizer there is no text.
// Owner: a command. One thread. The tokenizer must outlive it.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "base/token_id.h"
#include "request/sampling_params.h"
#include "tokenizer/stop_matcher.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

class TextStream {
 public:
  // `tokenizer` may be null.
  static Result<TextStream> create(const Tokenizer* tokenizer, const SamplingParams& sampling,
                                   std::span<const TokenId> prompt);

  // Appends to `out` what is certain after these tokens. True when a stop string is complete.
  bool push(std::span<const TokenId> tokens, std::string& out);
  // The tokens are over, without a stop string: appends what was held back.
  void finish(std::string& out);

 private:
  TextStream(const Tokenizer* tokenizer, StopMatcher stops, std::span<const TokenId> prompt);

  std::optional<StreamingDetokenizer> detokenizer_;
  StopMatcher stops_;
  std::string decoded_;
};

}  // namespace sluice
