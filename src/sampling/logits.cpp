#include "sampling/logits.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace sluice {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Rows are scanned in pieces, most of which hold nothing above the best so far. Their length is
// constant, so that the compiler makes vectors of the loops over whole ones.
constexpr std::size_t kPiece = 64;
using WholePiece = std::span<const float, kPiece>;

bool any_above(WholePiece piece, float bound) {
  std::uint32_t above = 0;
  for (std::size_t i = 0; i < kPiece; ++i) above |= static_cast<std::uint32_t>(piece[i] > bound);
  return above != 0;
}

// The exponent is all ones for NaN and infinities only.
bool is_finite(float value) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  return (std::bit_cast<std::uint32_t>(value) & kExponent) != kExponent;
}

bool all_finite(WholePiece piece) {
  std::uint32_t not_finite = 0;
  for (std::size_t i = 0; i < kPiece; ++i) {
    not_finite |= static_cast<std::uint32_t>(!is_finite(piece[i]));
  }
  return not_finite == 0;
}

// Calls piece(first index, logits) for each piece of which may_skip(whole piece) is not true.
template <class MaySkip, class Piece>
void for_each_piece(std::span<const float> logits, MaySkip may_skip, Piece piece) {
  std::size_t first = 0;
  for (; first + kPiece <= logits.size(); first += kPiece) {
    const WholePiece whole = logits.subspan(first).first<kPiece>();
    if (!may_skip(whole)) piece(first, whole);
  }
  piece(first, logits.subspan(first));
}

void take_best(std::size_t first, std::span<const float> logits, ScoredToken& best) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best.score) best = {logits[i], static_cast<TokenId>(first + i)};
  }
}

// Scans the row once with a heap of the best tokens so far, the worst on top. Random rows cause
// about count * ln(V / count) updates. The first of equal logits stays.
void select_with_heap(std::span<const float> logits, std::size_t count,
                      std::vector<ScoredToken>& out) {
  const auto may_skip = [&](WholePiece piece) {
    return out.size() == count && !any_above(piece, out.front().score);
  };
  for_each_piece(logits, may_skip, [&](std::size_t first, std::span<const float> piece) {
    auto id = static_cast<TokenId>(first);
    for (const float logit : piece) {
      const ScoredToken token{logit, id++};
      if (out.size() < count) {
        out.push_back(token);
        std::push_heap(out.begin(), out.end(), ranks_before);
      } else if (ranks_before(token, out.front())) {
        std::pop_heap(out.begin(), out.end(), ranks_before);
        out.back() = token;
        std::push_heap(out.begin(), out.end(), ranks_before);
      }
    }
  });
}

// Buckets by the leading bits of the weight, largest weights first. There are 16 buckets per power
// of two, so each holds few tokens. The mapping is monotone, exact and cheap. REQUIRES: 0 <= weight
// <= 1.
constexpr std::uint32_t kOneBits = 0x3F800000U;  // of 1.0F
constexpr std::uint32_t kBucketShift = 19;       // keeps sign, exponent and 4 bits of mantissa
constexpr std::size_t kBuckets = (kOneBits >> kBucketShift) + 1;

std::size_t bucket_of(float weight) {
  return (kOneBits - std::bit_cast<std::uint32_t>(weight)) >> kBucketShift;
}

}  // namespace

LogitScan scan_logits(std::span<const float> logits) {
  LogitScan scan{{kMinusInfinity, 0}, true};
  const auto may_skip = [&](WholePiece piece) {
    scan.finite &= all_finite(piece);
    return !any_above(piece, scan.best.score);
  };
  for_each_piece(logits, may_skip, [&](std::size_t first, std::span<const float> piece) {
    take_best(first, piece, scan.best);
    if (piece.size() < kPiece) scan.finite &= std::ranges::all_of(piece, is_finite);
  });
  return scan;
}

ScoredToken best_token(std::span<const float> logits) {
  ScoredToken best{kMinusInfinity, 0};
  const auto may_skip = [&](WholePiece piece) { return !any_above(piece, best.score); };
  for_each_piece(logits, may_skip, [&](std::size_t first, std::span<const float> piece) {
    take_best(first, piece, best);
  });
  return best;
}

double log_sum_exp(std::span<const float> logits, float max) {
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - max));
  return static_cast<double>(max) + std::log(sum);
}

void select_best(std::span<const float> logits, std::int32_t count, std::vector<ScoredToken>& out) {
  out.clear();
  const std::size_t wanted = std::min(static_cast<std::size_t>(std::max(count, 0)), logits.size());
  if (wanted == 0) return;
  if (wanted <= static_cast<std::size_t>(kHeapSelect)) {
    select_with_heap(logits, wanted, out);
  } else {
    TokenId id = 0;
    for (const float logit : logits) out.push_back({logit, id++});
    const auto end = out.begin() + static_cast<std::ptrdiff_t>(wanted);
    std::nth_element(out.begin(), end - 1, out.end(), ranks_before);
    out.resize(wanted);
  }
  std::sort(out.begin(), out.end(), ranks_before);
}

ScoredToken nucleus_end(std::span<const float> logits, std::span<const float> weights, float top_p,
                        std::vector<ScoredToken>& scratch) {
  // Sums the weights of each bucket first; only the bucket in which the nucleus ends is sorted.
  std::array<double, kBuckets> mass{};
  double total = 0;
  for (const float weight : weights) {
    mass[bucket_of(weight)] += static_cast<double>(weight);
    total += static_cast<double>(weight);
  }
  const double wanted = static_cast<double>(top_p) * total;
  double before = 0;
  std::size_t bucket = 0;
  while (bucket + 1 < mass.size() && before + mass[bucket] < wanted) before += mass[bucket++];

  scratch.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (bucket_of(weights[i]) != bucket) continue;
    scratch.push_back({logits[i], static_cast<TokenId>(i)});
  }
  // Empty only if rounding moved the search past the last weight; then every token stays.
  if (scratch.empty()) return {kMinusInfinity, std::numeric_limits<TokenId>::max()};
  std::sort(scratch.begin(), scratch.end(), ranks_before);
  std::size_t last = 0;
  before += static_cast<double>(weights[static_cast<std::size_t>(scratch[0].id)]);
  while (before < wanted && last + 1 < scratch.size()) {
    before += static_cast<double>(weights[static_cast<std::size_t>(scratch[++last].id)]);
  }
  return scratch[last];
}

void drop_below(ScoredToken last, std::span<float> logits, std::span<float> weights) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!ranks_before(last, {logits[i], static_cast<TokenId>(i)})) continue;
    logits[i] = kMinusInfinity;
    weights[i] = 0;
  }
}

TokenId draw(std::span<const float> weights, double u) {
  double total = 0;
  for (const float weight : weights) total += static_cast<double>(weight);
  CHECK(total > 0);
  const double target = u * total;
  double sum = 0;
  TokenId last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0)) continue;
    sum += static_cast<double>(weights[i]);
    last = static_cast<TokenId>(i);
    if (sum > target) break;
  }
  return last;
}

}  // namespace sluice
