// StepTimePredictor: predicts how long a step takes from a few sums over its rows. It is linear in
// each sum with coefficients >= 0, except in the tokens: there it is piecewise linear and may jump
// at each tile. So the prediction never falls when a row is added or a chunk grows, and a policy
// can use binary search.
//
//   time = curve(tokens) + tile_ns * ceil(tokens / tile)     matmuls
//        + chunk_token_ns * chunk_tokens + row_ns * rows
//        + (logits wanted ? logits_ns : 0) + logit_row_ns * logit_rows
//        + decode_context_ns * sum of the decodes' contexts  attention reads KV
//        + chunk_work_ns * sum of q (context + q / 2)        attention computes
//        + chunk_context_ns * sum of the chunks' contexts    and reads KV again for each chunk
//
// src/profile fits the coefficients. Times in nanoseconds.
// Values: plain, no allocation; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "scheduler/batch_plan.h"

namespace sluice {

// Sums over a step's rows, to which rows are added one by one.
struct StepFeatures {
  std::int32_t tokens = 0;
  std::int32_t chunk_tokens = 0;  // of these, in rows of prompts
  std::int32_t rows = 0;
  std::int32_t logit_rows = 0;
  double decode_context = 0;
  double chunk_work = 0;  // query-key pairs
  double chunk_context = 0;

  // `window`: positions that attention sees, 0 = all (StepTimePredictor::window).
  static double seen(std::int32_t context, std::int32_t window) {
    return window > 0 ? std::min(context, window) : context;
  }
  void add_decode(std::int32_t context, std::int32_t window = 0) {
    ++tokens;
    ++rows;
    ++logit_rows;
    decode_context += seen(context, window);
  }
  void add_chunk(std::int32_t context, std::int32_t count, bool ends_prompt,
                 std::int32_t window = 0) {
    tokens += count;
    chunk_tokens += count;
    ++rows;
    logit_rows += ends_prompt ? 1 : 0;
    chunk_work += count * seen(context + count / 2, window);
    chunk_context += seen(context, window);
  }
  // Adds a row of a plan. One token with logits is a decode (or the last token of a prompt alone,
  // which costs the same); any other row is a chunk.
  void add(const PlanRow& row, std::int32_t window = 0) {
    if (row.query_len == 1 && row.num_logits > 0) {
      add_decode(row.context_len, window);
    } else {
      add_chunk(row.context_len, row.query_len, row.num_logits > 0, window);
    }
  }
};

inline StepFeatures step_features(const BatchPlan& plan, std::int32_t window = 0) {
  StepFeatures features;
  for (const PlanRow& row : plan.rows) features.add(row, window);
  return features;
}

// The same without the chunks.
inline StepFeatures decode_features(const BatchPlan& plan, std::int32_t window = 0) {
  StepFeatures features;
  for (const PlanRow& row : plan.rows) {
    if (row.num_logits == row.query_len) features.add(row, window);
  }
  return features;
}

struct StepTimePredictor {
  static constexpr std::size_t kMaxKnots = 24;
  struct Knot {
    std::int32_t tokens = 0;
    double ns = 0;
  };

  // The curve over tokens: at least 2 knots, ascending, the first at 0 tokens (the fixed cost of a
  // step). Beyond the last knot the last slope continues.
  std::array<Knot, kMaxKnots> knots{};
  std::int32_t num_knots = 0;
  std::int32_t tile = 1;  // tokens; 1: no steps were found
  double tile_ns = 0;
  double chunk_token_ns = 0;
  double row_ns = 0;
  double logits_ns = 0;
  double logit_row_ns = 0;
  double decode_context_ns = 0;
  double chunk_work_ns = 0;
  double chunk_context_ns = 0;
  std::int32_t window = 0;  // of the model's attention; 0: some layer has full attention

  // The part that depends only on the numbers of tokens and rows: matmuls, norms and so on.
  double linear_ns(const StepFeatures& f) const {
    if (f.rows == 0) return 0;
    const auto tiles = (f.tokens + tile - 1) / tile;
    return curve_ns(f.tokens) + tile_ns * static_cast<double>(tiles) +
           chunk_token_ns * f.chunk_tokens + row_ns * f.rows + (f.logit_rows > 0 ? logits_ns : 0) +
           logit_row_ns * f.logit_rows;
  }
  // The part that depends on contexts.
  double decode_attention_ns(const StepFeatures& f) const {
    return decode_context_ns * f.decode_context;
  }
  double chunk_attention_ns(const StepFeatures& f) const {
    return chunk_work_ns * f.chunk_work + chunk_context_ns * f.chunk_context;
  }
  double attention_ns(const StepFeatures& f) const {
    return decode_attention_ns(f) + chunk_attention_ns(f);
  }
  // 0 for a step without rows.
  double time_ns(const StepFeatures& f) const { return linear_ns(f) + attention_ns(f); }

  // The time of the step with one more chunk.
  double with_chunk_ns(StepFeatures f, std::int32_t context, std::int32_t count,
                       bool ends_prompt) const {
    f.add_chunk(context, count, ends_prompt, window);
    return time_ns(f);
  }

  // The longest chunk of at most `most` tokens after `context` tokens with which the step stays
  // within limit_ns; 0 when there is none. Takes about log2(most) predictions.
  std::int32_t largest_chunk(const StepFeatures& f, std::int32_t context, std::int32_t most,
                             bool ends_prompt, double limit_ns) const {
    if (most < 1) return 0;
    if (with_chunk_ns(f, context, most, ends_prompt) <= limit_ns) return most;
    std::int32_t fits = 0;
    std::int32_t exceeds = most;
    while (exceeds - fits > 1) {
      const std::int32_t middle = fits + (exceeds - fits) / 2;
      (with_chunk_ns(f, context, middle, false) <= limit_ns ? fits : exceeds) = middle;
    }
    return fits;
  }

 private:
  double curve_ns(std::int32_t tokens) const {
    const auto last = static_cast<std::size_t>(num_knots - 1);
    std::size_t i = 1;
    while (i < last && knots[i].tokens < tokens) ++i;
    const Knot& a = knots[i - 1];
    const Knot& b = knots[i];
    return a.ns + (b.ns - a.ns) * (tokens - a.tokens) / (b.tokens - a.tokens);
  }
};

}  // namespace sluice
