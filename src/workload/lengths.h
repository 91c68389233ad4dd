// Lengths of prompts and outputs: named synthetic distributions that match published quantiles,
// rows of a csv, or fixed and uniform ones. A seed gives the same lengths on every machine.
// Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/workload.h"

namespace sluice {

struct RequestLengths {
  std::int32_t prompt_tokens = 0;
  std::int32_t output_tokens = 0;
};

// `spec`: "sharegpt" or "arxiv" (Sarathi-Serve, table 2: medians, P90 and deviations of
// openchat_sharegpt4 and arxiv_summarization, outliers beyond 8,192 and 16,384 tokens removed),
// "fixed:P,O", "uniform:P1-P2,O1-O2", or the path of a csv file with the columns num_prefill_tokens
// and num_decode_tokens (rows in an order shuffled by the seed, from the start again when they are
// exhausted). The lengths are scaled by `scale`, as scale_lengths() does. Totals beyond max_total
// (0: no limit) are then shortened in proportion, at least one token each; `shortened`, if given,
// gets their number. Errors name the spec, the scale, or file, line and column.
Result<std::vector<RequestLengths>> make_lengths(std::string_view spec, std::int64_t count,
                                                 std::int32_t max_total, std::uint64_t seed,
                                                 std::int64_t* shortened = nullptr,
                                                 double scale = 1);

// Requests with these lengths and arrival times. REQUIRES: equal sizes.
std::vector<WorkloadRequest> requests_of(const std::vector<RequestLengths>& lengths,
                                         const std::vector<Duration>& arrivals);

// How messages name lengths: the spec, and the scale if it is not 1.
std::string name_of_lengths(std::string_view spec, double scale);

// The names that make_lengths knows, for messages and help.
std::vector<std::string_view> length_names();

// An error names a scale that is not from 1e-6 to 100: the tokens of longer prompts take memory.
Status check_length_scale(double scale);

// `scale` times both lengths, rounded, at least one token each. Nothing: more than
// kMaxRequestTokens. REQUIRES: check_length_scale() accepts the scale.
std::optional<RequestLengths> scale_lengths(RequestLengths lengths, double scale);

// Shortens both lengths in proportion, to at most `max_total` together and at least one token each.
// REQUIRES: max_total >= 2; both lengths >= 1.
RequestLengths shorten(RequestLengths lengths, std::int32_t max_total);

}  // namespace sluice
