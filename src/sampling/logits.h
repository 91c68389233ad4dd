// Pure functions over one row of logits: scans, edits, and exact selection of the likeliest
// tokens without sorting the vocabulary. Order everywhere: higher logit first, and of equal
// logits the lower token id, so that every result is the same on every machine.
// Nothing allocates beyond the capacity of the scratch it is given. Any thread.
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

// The best token of a row that may hold -infinity but no NaN; score -infinity when all are.
ScoredToken best_token(std::span<const float> logits);

// log(sum(exp(logits))), summed in double. `max`: the largest of them, finite.
double log_sum_exp(std::span<const float> logits, float max);

// The `count` best tokens (all, when there are fewer), best first, into `out`, whose capacity is
// the size of the row when count is large and `count` when it is at most kHeapSelect.
inline constexpr std::int32_t kHeapSelect = 256;
void select_best(std::span<const float> logits, std::int32_t count, std::vector<ScoredToken>& out);

// The last token of the nucleus: the smallest set of best tokens whose weights sum to at least
// `top_p` of all weights. weights[i] in [0, 1] belongs to logits[i] and must not fall where the
// logit rises; some weight is positive. `scratch` holds up to the whole row.
ScoredToken nucleus_end(std::span<const float> logits, std::span<const float> weights, float top_p,
                        std::vector<ScoredToken>& scratch);

// Sets weight 0 and logit -infinity for every token that ranks behind `last`.
void drop_behind(ScoredToken last, std::span<float> logits, std::span<float> weights);

// Index i with the smallest prefix sum of weights[0..i] above u * total, for u in [0, 1): inverse
// transform sampling in the order of token ids. REQUIRES: some weight is positive.
TokenId draw(std::span<const float> weights, double u);

}  // namespace sluice
