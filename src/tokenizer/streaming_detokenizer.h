// StreamingDetokenizer: turns token ids into text as they arrive. Each push appends the text that
// is certain, in whole characters. All pushes and finish() together give exactly Tokenizer::decode
// of the same ids. Owned by one stream; one thread at a time. The Tokenizer must outlive it.
#pragma once

#include <span>
#include <string>

#include "base/token_id.h"
#include "tokenizer/token_decoder.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

class StreamingDetokenizer {
 public:
  StreamingDetokenizer(const Tokenizer& tokenizer, SkipSpecialTokens skip)
      : tokenizer_(tokenizer), skip_(skip) {}

  // Makes the text continue `prompt`: it is then the text that decode() adds after the prompt.
  // Without this call, SentencePiece models drop the space before the first word. REQUIRES: no push
  // yet.
  void start_after(std::span<const TokenId> prompt);

  // Appends the text that is certain now.
  void push(TokenId id, std::string& out);

  // The stream is over: appends the rest (an incomplete character becomes U+FFFD).
  void finish(std::string& out);

 private:
  const Tokenizer& tokenizer_;
  SkipSpecialTokens skip_;
  TokenDecoder::State state_;
};

}  // namespace sluice
