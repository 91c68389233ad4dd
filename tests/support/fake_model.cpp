#include "tests/support/fake_model.h"

#include <algorithm>

namespace sluice {

std::uint64_t FakeModel::mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9E3779B97F4A7C15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t FakeModel::content(TokenId token, std::int32_t position, std::int32_t group,
                                 std::int32_t adapter, std::uint64_t seen) const {
  const auto place = static_cast<std::uint64_t>(position) * 64 + static_cast<std::uint64_t>(group);
  const auto weights = static_cast<std::uint64_t>(adapter + 1) << 32;
  return mix(mix(static_cast<std::uint64_t>(token) + weights, place), seen);
}

TokenId FakeModel::sample(const Request& request, std::int32_t choice, std::int32_t output_index,
                          std::uint64_t seen) const {
  const std::uint64_t stream =
      mix(request.sampling.seed,
          static_cast<std::uint64_t>(choice) << 32 | static_cast<std::uint32_t>(output_index));
  auto token = static_cast<TokenId>(mix(seen, stream) % static_cast<std::uint64_t>(vocab_size));
  if (output_index >= request.sampling.min_tokens) return token;
  const auto stops = [&](TokenId id) {
    const std::vector<TokenId>& ids = request.sampling.stop_token_ids;
    return std::find(eos_ids.begin(), eos_ids.end(), id) != eos_ids.end() ||
           std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  while (stops(token)) token = (token + 1) % vocab_size;
  return token;
}

bool FakeModel::fails(const Request& request, std::int32_t choice,
                      std::int32_t output_index) const {
  if (fail_one_in == 0) return false;
  const std::uint64_t stream =
      static_cast<std::uint64_t>(choice) << 32 | static_cast<std::uint32_t>(output_index);
  return mix(mix(request.sampling.seed, 0xFA11), stream) % fail_one_in == 0;
}

ExpectedOutput expected_output(const FakeModel& model, const Request& request, std::int32_t choice,
                               std::int32_t max_model_len) {
  const SamplingParams& sampling = request.sampling;
  ExpectedOutput out;
  out.tokens = request.prompt;
  // sums[g][p]: contents of group g in front of position p.
  std::vector<std::vector<std::uint64_t>> sums(model.group_windows.size(), {0});
  const auto seen_from = [&](std::int32_t end, std::int32_t query) {
    std::uint64_t seen = 0;
    for (std::size_t g = 0; g < sums.size(); ++g) {
      const std::int32_t window = model.group_windows[g];
      const std::int32_t begin = window == 0 ? 0 : std::max(0, query - window + 1);
      seen += sums[g][static_cast<std::size_t>(end)] - sums[g][static_cast<std::size_t>(begin)];
    }
    return seen;
  };
  const auto prompt_len = static_cast<std::int32_t>(request.prompt.size());
  for (std::int32_t p = 0;; ++p) {
    const TokenId token = out.tokens[static_cast<std::size_t>(p)];
    // A window of one token sees nothing in front of the query.
    const std::uint64_t seen = seen_from(p, p);
    for (std::size_t g = 0; g < sums.size(); ++g) {
      sums[g].push_back(sums[g].back() + model.content(token, p, static_cast<std::int32_t>(g),
                                                       request.adapter, seen));
    }
    const std::int32_t output_index = p + 1 - prompt_len;
    if (output_index < 0) continue;
    if (model.fails(request, choice, output_index)) {
      out.finish_reason = FinishReason::kError;
      return out;
    }
    const TokenId next = model.sample(request, choice, output_index, seen_from(p + 1, p));
    out.tokens.push_back(next);
    const bool may_stop = output_index >= sampling.min_tokens;
    const auto is = [next](const std::vector<TokenId>& ids) {
      return std::find(ids.begin(), ids.end(), next) != ids.end();
    };
    if (may_stop && ((!sampling.ignore_eos && is(model.eos_ids)) || is(sampling.stop_token_ids))) {
      out.finish_reason = FinishReason::kStop;
      return out;
    }
    if (output_index + 1 >= sampling.max_tokens || p + 2 >= max_model_len) {
      out.finish_reason = FinishReason::kLength;
      return out;
    }
  }
}

}  // namespace sluice
