#include "server/logprob_lists.h"

#include <memory>
#include <utility>

namespace sluice {

LogprobList make_logprob_list(const Tokenizer& tokenizer, LogprobShape shape,
                              std::span<const TokenLogprob> entries,
                              std::span<const std::int64_t> offsets) {
  const auto get = [&tokenizer, shape, entries, offsets](std::size_t index,
                                                         OutputTokenLogprobs& out) {
    const auto text_of = [&](const TokenLogprob& entry) {
      return TokenLogprobText{entry.token, tokenizer.token_bytes(entry.token), entry.logprob};
    };
    const auto own = entries.subspan(index * shape.per_token, shape.per_token);
    out.chosen = text_of(own.front());
    out.has_logprob = index > 0 || !shape.first_has_none;
    out.top.clear();
    for (const TokenLogprob& entry : own.subspan(1)) out.top.push_back(text_of(entry));
    out.text_offset = offsets[index];
  };
  return {offsets.size(), get};
}

LogprobList owning_logprob_list(const Tokenizer& tokenizer, LogprobShape shape,
                                std::vector<TokenLogprob> entries,
                                std::vector<std::int64_t> offsets) {
  struct Data {
    std::vector<TokenLogprob> entries;
    std::vector<std::int64_t> offsets;
  };
  // Shared because std::function copies its captures.
  const auto data = std::make_shared<const Data>(Data{std::move(entries), std::move(offsets)});
  LogprobList list = make_logprob_list(tokenizer, shape, data->entries, data->offsets);
  return {list.size, [data, get = std::move(list.get)](
                         std::size_t index, OutputTokenLogprobs& out) { get(index, out); }};
}

PromptLogprobList make_prompt_logprob_list(const Tokenizer& tokenizer,
                                           std::vector<PromptLogprob> scores, std::size_t per_score,
                                           std::size_t shown, std::size_t tokens) {
  // Shared because std::function copies its captures.
  const auto data = std::make_shared<const std::vector<PromptLogprob>>(std::move(scores));
  const auto get = [&tokenizer, data, per_score, shown](std::size_t index,
                                                        std::vector<RankedLogprob>& out) {
    out.clear();
    if (index == 0) return;
    for (std::size_t k = 0; k < shown; ++k) {
      const PromptLogprob& score = (*data)[(index - 1) * per_score + k];
      out.push_back({{score.token, tokenizer.token_bytes(score.token), score.logprob}, score.rank});
    }
  };
  return {tokens, get};
}

}  // namespace sluice
