// Sampling by the letter of the definition in op_params.h: sorts the whole row and sums in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "device/cpu/reference/reference_ops.h"
#include "device/cpu/row_count.h"

namespace sluice {
namespace {

struct Candidate {
  std::int64_t id = 0;
  float logit = 0.0F;
  float weight = 0.0F;
};

bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

double sum_of_weights(const std::vector<Candidate>& candidates) {
  double sum = 0.0;
  for (const Candidate& c : candidates) sum += static_cast<double>(c.weight);
  return sum;
}

// Keeps the fewest best candidates whose weights sum to `top_p` of all weights. REQUIRES: best
// first.
void keep_nucleus(std::vector<Candidate>& candidates, float top_p) {
  const double wanted = static_cast<double>(top_p) * sum_of_weights(candidates);
  double sum = 0.0;
  std::size_t kept = 0;
  while (kept < candidates.size() && sum < wanted) {
    sum += static_cast<double>(candidates[kept++].weight);
  }
  candidates.resize(std::max<std::size_t>(kept, 1));
}

std::int32_t draw(std::vector<Candidate>& candidates, double uniform) {
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  const double target = uniform * sum_of_weights(candidates);
  double sum = 0.0;
  std::int64_t last = 0;
  for (const Candidate& c : candidates) {
    if (!(c.weight > 0.0F)) continue;
    sum += static_cast<double>(c.weight);
    last = c.id;
    if (sum > target) break;
  }
  return static_cast<std::int32_t>(last);
}

// The token of a row; -1 if a logit is not finite.
std::int32_t sample_row(const float* logits, std::int64_t vocab, const RowSampling& row) {
  std::vector<Candidate> candidates;
  for (std::int64_t i = 0; i < vocab; ++i) {
    if (!std::isfinite(logits[i])) return -1;
    candidates.push_back({i, logits[i], 0.0F});
  }
  std::sort(candidates.begin(), candidates.end(), is_better);
  const float best = candidates.front().logit;
  if (row.temperature == 0.0F) return static_cast<std::int32_t>(candidates.front().id);
  for (Candidate& c : candidates) c.weight = std::exp((c.logit - best) / row.temperature);
  const auto is_small = [&](const Candidate& c) { return c.weight < row.min_p; };
  candidates.erase(std::find_if(candidates.begin(), candidates.end(), is_small), candidates.end());
  if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < candidates.size()) {
    candidates.resize(static_cast<std::size_t>(row.top_k));
  }
  if (row.top_p < 1.0F) keep_nucleus(candidates, row.top_p);
  return draw(candidates, row.uniform);
}

}  // namespace

void ReferenceOps::execute(const SampleParams& p) {
  CHECK(p.logits.dtype == DType::kF32 && p.logits.dims[1] > 0);
  for (std::int32_t i = 0; i < rows_in_use(p.rows); ++i) {
    const RowSampling& row = p.sampling[i];
    if (row.slot < 0) continue;
    const float* logits = p.logits.as<const float>() + i * p.logits.strides[0];
    p.tokens[i] = sample_row(logits, p.logits.dims[1], row);
    p.last_tokens[row.slot] = std::max(p.tokens[i], 0);
  }
}

}  // namespace sluice
