// Pure functions over one row of logits: scans, edits, and exact selection of the most likely
// tokens without sorting the vocabulary. The order is always: higher logit first; of equal logits,
// lower token id first. So every result is the same on every machine. Functions allocate only when
// the given scratch is too small. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/token_id.h"

namespace sluice {

struct ScoredToken {
  float score = 0.0F;
  TokenId id = 0;
};

// Whether a comes before b.
constexpr bool ranks_before(const ScoredToken& a, const ScoredToken& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// The best token, and whether every logit is finite. NaN and infinities make finite false.
struct LogitScan {
  ScoredToken best;
  bool finite = true;
};
LogitScan scan_logits(std::span<const float> logits);

// The best token of a row that may hold -infinity but no NaN. The score is -infinity if all are.
ScoredToken best_token(std::span<const float> logits);

// log(sum(exp(logits))), summed in double. REQUIRES: `max` is the largest logit, and finite.
double log_sum_exp(std::span<const float> logits, float max);

// Writes the `count` best tokens (all, if there are fewer) to `out`, best first. `out` grows to
// `count` if count is at most kHeapSelect, else to the size of the row.
inline constexpr std::int32_t kHeapSelect = 256;
void select_best(std::span<const float> logits, std::int32_t count, std::vector<ScoredToken>& out);

// The last token of the nucleus: the smallest set of best tokens whose weights sum to at least
// `top_p` of all weights. `scratch` grows to at most the size of the row. REQUIRES: weights[i]
// belongs to logits[i] and lies in [0, 1]; a higher logit has no lower weight; some weight is
// positive.
ScoredToken nucleus_end(std::span<const float> logits, std::span<const float> weights, float top_p,
                        std::vector<ScoredToken>& scratch);

// Sets weight 0 and logit -infinity for every token that ranks below `last`.
void drop_below(ScoredToken last, std::span<float> logits, std::span<float> weights);

// The smallest i for which the sum of weights[0..i] is above u * total, for u in [0, 1): inverse
// transform sampling in the order of token ids. REQUIRES: some weight is positive.
TokenId draw(std::span<const float> weights, double u);

}  // namespace sluice
