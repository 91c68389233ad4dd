// Sampling: one block of threads per row.
//
// Weights are whole numbers: multiples of the smallest power of two with which a row's sum fits 64
// bits. So sums are exact in any order, and a sum over tokens is the sum over its parts. The
// rounding error of a weight is below 2^-44 of the best weight (for 2^18 tokens), far less than the
// rounding error of exp. Nothing is sorted. The last token kept is found digit by digit of its
// logit's bits; the drawn token is found by cutting the row into ever smaller pieces.
#include "device/cuda/kernels/elements.cuh"

namespace sluice::cuda {
namespace {

using Sum = unsigned long long;

constexpr int kThreads = 512;  // as launch_shapes.cpp
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigitBits = 3;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kLastId = 0x7FFFFFFF;
constexpr Sum kNotFinite = ~Sum{0};

struct Scratch {
  Sum values[kDigits * kThreads];
  Sum parts[kThreads];
  Sum totals[kWarps];
};

// A row and its kept tokens, down to (last_key, last_id) in rank.
struct Row {
  const float* logits;
  int vocab;
  float best;
  float temperature;
  float min_p;
  float unit;  // the weight of the best token
  unsigned last_key;
  int last_id;
};

__device__ int own_thread() { return static_cast<int>(threadIdx.x); }

// Maps logits to unsigned numbers of the same order; the two zeros are equal.
__device__ unsigned key_of(float logit) {
  const unsigned bits = __float_as_uint(logit + 0.0F);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

__device__ float logit_of(unsigned key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7FFFFFFFU : ~key);
}

__device__ bool is_kept(const Row& row, unsigned key, int id) {
  return key > row.last_key || (key == row.last_key && id <= row.last_id);
}

__device__ Sum weight_of(const Row& row, float logit) {
  const float weight = expf((logit - row.best) / row.temperature);
  return weight < row.min_p ? 0 : static_cast<Sum>(weight * row.unit);
}

// Keeps the sum of a row below 2^63.
__device__ float unit_for(int vocab) {
  float unit = 0x1p62F;
  for (std::int64_t tokens = 1; tokens < vocab; tokens *= 2) unit *= 0.5F;
  return unit;
}

// totals[i] = the sum of values[i * run, (i + 1) * run), for i below `count`, a power of two up to
// kWarps. All threads call it once they have written their values, and may read totals afterwards.
__device__ void fold(Scratch& scratch, int count, int run) {
  const int helpers = kThreads / count;
  const Sum* values = scratch.values + own_thread() / helpers * run;
  __syncthreads();
  Sum part = 0;
  for (int i = own_thread() % helpers; i < run; i += helpers) part += values[i];
  scratch.parts[own_thread()] = part;
  __syncthreads();
  if (own_thread() < count) {
    Sum total = 0;
    for (int i = 0; i < helpers; ++i) total += scratch.parts[own_thread() * helpers + i];
    scratch.totals[own_thread()] = total;
  }
  __syncthreads();
}

// The best token, as its key and the complement of its id, or kNotFinite.
__device__ Sum find_best(Scratch& scratch, const float* logits, int vocab) {
  Sum best = 0;
  for (int i = own_thread(); i < vocab; i += kThreads) {
    const float logit = logits[i];
    const bool finite = (__float_as_uint(logit) & 0x7F800000U) != 0x7F800000U;
    const Sum token = static_cast<Sum>(key_of(logit)) << 32 | ~static_cast<unsigned>(i);
    const Sum rank = finite ? token : kNotFinite;
    if (rank > best) best = rank;
  }
  scratch.values[own_thread()] = best;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own_thread() >= half) continue;
    const Sum other = scratch.values[own_thread() + half];
    if (other > scratch.values[own_thread()]) scratch.values[own_thread()] = other;
  }
  __syncthreads();
  best = scratch.values[0];
  __syncthreads();  // all threads have read it
  return best;
}

// The first token, by id, up to which masses sum to more than target(sum of all).
// REQUIRES: the target is below the sum.
template <class Mass, class Target>
__device__ int find_token(Scratch& scratch, int vocab, Mass mass, Target target) {
  const int warp = own_thread() / kWarp;
  const int lane = own_thread() % kWarp;
  int begin = 0;
  int end = vocab;
  Sum before = 0;
  Sum goal = 0;
  do {
    const int piece = (end - begin + kWarps - 1) / kWarps;
    const std::int64_t first = begin + static_cast<std::int64_t>(warp) * piece;
    const std::int64_t last = first + piece < end ? first + piece : end;
    Sum sum = 0;
    for (std::int64_t i = first + lane; i < last; i += kWarp) sum += mass(static_cast<int>(i));
    scratch.values[own_thread()] = sum;
    fold(scratch, kWarps, kWarp);
    if (end - begin == vocab) {
      Sum all = 0;
      for (int i = 0; i < kWarps; ++i) all += scratch.totals[i];
      goal = target(all);
    }
    int chosen = 0;
    while (chosen + 1 < kWarps && before + scratch.totals[chosen] <= goal) {
      before += scratch.totals[chosen++];
    }
    begin += chosen * piece;
    if (begin + piece < end) end = begin + piece;
    __syncthreads();  // all threads have read the totals
  } while (end - begin > 1);
  return begin;
}

// The end of the kept tokens: the largest key at or above which masses sum to the goal.
struct Boundary {
  unsigned key;
  Sum above;  // mass of tokens that rank above the key
  Sum at;     // mass of tokens that have the key
  Sum goal;
};

template <class Mass, class Goal>
__device__ Boundary find_boundary(Scratch& scratch, const Row& row, Mass mass, Goal goal) {
  Boundary found = {0, 0, 0, 0};
  for (int shift = 30; shift >= 0; shift -= kDigitBits) {
    Sum sums[kDigits] = {};
    for (int i = own_thread(); i < row.vocab; i += kThreads) {
      const unsigned key = key_of(row.logits[i]);
      const unsigned digit =
          (key ^ found.key) >> shift;  // larger if the digits found so far differ
      if (digit >= kDigits || !is_kept(row, key, i)) continue;
      const Sum own = mass(row.logits[i]);
      for (unsigned d = 0; d < kDigits; ++d) sums[d] += d == digit ? own : 0;
    }
    for (int d = 0; d < kDigits; ++d) scratch.values[d * kThreads + own_thread()] = sums[d];
    fold(scratch, kDigits, kThreads);
    if (shift == 30) {
      Sum all = 0;
      for (int d = 0; d < kDigits; ++d) all += scratch.totals[d];
      found.goal = goal(all);
    }
    int digit = kDigits - 1;
    while (digit > 0 && found.above + scratch.totals[digit] < found.goal) {
      found.above += scratch.totals[digit--];
    }
    found.key |= static_cast<unsigned>(digit) << shift;
    found.at = scratch.totals[digit];
    __syncthreads();                                         // all have read the totals
    if (found.above + found.at == found.goal) return found;  // it ends where this digit does
  }
  return found;
}

// Drops tokens that rank below the boundary. Tokens whose logits equal the boundary stay in order
// of id, as many as the goal needs.
template <class Mass, class Goal>
__device__ void keep_best(Scratch& scratch, Row& row, Mass mass, Goal goal) {
  const Boundary found = find_boundary(scratch, row, mass, goal);
  int last_id = kLastId;
  if (found.above + found.at > found.goal) {
    const Sum each = mass(logit_of(found.key));
    const Sum needed = (found.goal - found.above + each - 1) / each;
    const auto has_key = [&](int id) -> Sum {
      return key_of(row.logits[id]) == found.key && is_kept(row, found.key, id) ? 1 : 0;
    };
    last_id = find_token(scratch, row.vocab, has_key, [&](Sum) { return needed - 1; });
  }
  if (found.key < row.last_key) return;
  if (found.key > row.last_key || last_id < row.last_id) row.last_id = last_id;
  row.last_key = found.key;
}

__device__ int draw_token(Scratch& scratch, Row row, const RowSampling& sampling) {
  const auto weight = [&](float logit) { return weight_of(row, logit); };
  if (sampling.top_k > 0 && sampling.top_k < row.vocab) {
    keep_best(
        scratch, row, [](float) { return Sum{1}; },
        [&](Sum) { return static_cast<Sum>(sampling.top_k); });
  }
  if (sampling.top_p < 1.0F) {
    keep_best(scratch, row, weight, [&](Sum all) {
      const double wanted = static_cast<double>(sampling.top_p) * static_cast<double>(all);
      const Sum least = static_cast<Sum>(ceil(wanted));
      return least < all ? (least > 0 ? least : 1) : all;
    });
  }
  const auto kept_weight = [&](int id) -> Sum {
    const float logit = row.logits[id];
    return is_kept(row, key_of(logit), id) ? weight_of(row, logit) : 0;
  };
  return find_token(scratch, row.vocab, kept_weight, [&](Sum all) {
    const Sum goal = static_cast<Sum>(sampling.uniform * static_cast<double>(all));
    return goal < all ? goal : all - 1;
  });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads) sluice_sample(const SampleParams p) {
  __shared__ Scratch scratch;
  const std::int32_t index = static_cast<std::int32_t>(blockIdx.x);
  if (index >= rows_in_use(p.rows)) return;
  const RowSampling sampling = p.sampling[index];
  if (sampling.slot < 0) return;
  Row row = {};
  row.logits = static_cast<const float*>(p.logits.data) + index * p.logits.strides[0];
  row.vocab = static_cast<int>(p.logits.dims[1]);
  const Sum best = find_best(scratch, row.logits, row.vocab);
  int token = -1;
  if (best != kNotFinite) {
    token = static_cast<int>(~static_cast<unsigned>(best));
    if (sampling.temperature != 0.0F) {
      row.best = row.logits[token];
      row.temperature = sampling.temperature;
      row.min_p = sampling.min_p;
      row.unit = unit_for(row.vocab);
      row.last_id = kLastId;
      token = draw_token(scratch, row, sampling);
    }
  }
  if (threadIdx.x != 0) return;
  p.tokens[index] = token;
  p.last_tokens[sampling.slot] = token < 0 ? 0 : token;
}

}  // namespace sluice::cuda
