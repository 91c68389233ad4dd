#include "tokenizer/streaming_detokenizer.h"

namespace sluice {

void StreamingDetokenizer::start_after(std::span<const TokenId> prompt) {
  std::string dropped;
  for (const TokenId id : prompt) {
    push(id, dropped);
    dropped.clear();
  }
}

void StreamingDetokenizer::push(TokenId id, std::string& out) {
  if (const auto text = tokenizer_.decoder_text(id, skip_)) {
    tokenizer_.decoder().push(*text, state_, out);
  }
}

void StreamingDetokenizer::finish(std::string& out) { tokenizer_.decoder().finish(state_, out); }

}  // namespace sluice
