// Turns token ids into text as they come. Each push gives whatever text is certain: whole
// characters only, never a half one. All pushes and finish() together give exactly
// Tokenizer::decode of the same ids.
// Owned by one stream; one thread at a time. The Tokenizer must outlive it.
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

  // Text that continues `prompt`: what decode would add after it. Without a prompt, models of the
  // SentencePiece kind drop the space before the very first word. Call before the first push.
  void start_after(std::span<const TokenId> prompt);

  // Appends the text that is certain now.
  void push(TokenId id, std::string& out);

  // The stream is over: appends what was held back (an incomplete character becomes U+FFFD).
  void finish(std::string& out);

 private:
  const Tokenizer& tokenizer_;
  SkipSpecialTokens skip_;
  TokenDecoder::State state_;
};

}  // namespace sluice
