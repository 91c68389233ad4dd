#include "function/append_batch.h"

#include <iterator>
#include <utility>

namespace sluice {

void append_batch(OutputBatch from, OutputBatch& to) {
  for (OutputEvent& event : from.events) {
    event.first_token += static_cast<std::uint32_t>(to.tokens.size());
    event.first_logprob += static_cast<std::uint32_t>(to.logprobs.size());
    event.first_prompt_logprob += static_cast<std::uint32_t>(to.prompt_logprobs.size());
    event.first_embedding += static_cast<std::uint32_t>(to.embeddings.size());
  }
  const auto append = [](auto& items, auto& target) {
    target.insert(target.end(), std::make_move_iterator(items.begin()),
                  std::make_move_iterator(items.end()));
  };
  append(from.events, to.events);
  append(from.tokens, to.tokens);
  append(from.logprobs, to.logprobs);
  append(from.prompt_logprobs, to.prompt_logprobs);
  append(from.embeddings, to.embeddings);
  append(from.refused, to.refused);
  append(from.steps, to.steps);
  if (from.has_progress) {
    to.has_progress = true;
    to.progress = std::move(from.progress);
  }
}

}  // namespace sluice
