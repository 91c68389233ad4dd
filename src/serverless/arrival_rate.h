// How often a function is called: a decaying rate and, beside it, a histogram of the gaps between
// calls. The rate follows a change of load. The histogram knows periods that the rate has
// forgotten: a call every ten minutes has a rate near zero just before the next call. Values:
// plain; the caller gives the time, which must not fall. One thread. No allocation. Size: about
// half a KiB each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

// Arrivals per second, each weighted by 1/2 for each half-life since it came. Shortly after `start`
// the sum is divided by the part of the weight that could have come since then, so the rate is not
// too low at first. That part counts as an eighth of a half-life at least.
class DecayingRate {
 public:
  // REQUIRES: half_life > 0.
  DecayingRate(TimePoint start, Duration half_life);
  void add(TimePoint now);
  double per_second(TimePoint now) const;

 private:
  double half_lives(Duration d) const { return to_seconds(d) / half_life_s_; }

  double half_life_s_;
  TimePoint start_;
  TimePoint last_;
  double weight_ = 0;  // of all arrivals, at last_
};

// Counts of gaps in buckets whose edges grow by 2^(1/4), from 1 ms to 74 hours; shorter and longer
// gaps count in the first and last. When kMostGaps are counted, all counts are halved, so old gaps
// fade out.
class GapHistogram {
 public:
  static constexpr double kMostGaps = 512;

  void add(Duration gap);
  double count() const { return count_; }
  // The probability that a gap that has lasted for `elapsed` ends within `horizon` more. Gaps are
  // spread evenly in their bucket. 0: no gap was as long as `elapsed`.
  double probability_within(Duration elapsed, Duration horizon) const;

 private:
  static constexpr std::size_t kBuckets = 112;
  static std::size_t bucket_of(double seconds);
  static double upper_edge(std::size_t bucket);  // seconds
  double longer_than(double seconds) const;      // number of gaps

  std::array<float, kBuckets> counts_{};
  std::size_t longest_ = 0;  // the last bucket that has counted a gap
  double count_ = 0;
};

// Both for one function.
class Arrivals {
 public:
  static constexpr double kEnoughGaps = 8;

  Arrivals(TimePoint start, Duration half_life) : rate_(start, half_life) {}
  void add(TimePoint now);
  // Arrivals per second that pre-loading counts on in the next `horizon`: the decaying rate, or the
  // probability of a call in the horizon divided by it, if kEnoughGaps are known and it is more.
  double expected_rate(TimePoint now, Duration horizon) const;
  // The time since the last call; from the start, if there was none.
  Duration since_last(TimePoint now) const { return now - last_; }
  const GapHistogram& gaps() const { return gaps_; }

 private:
  DecayingRate rate_;
  GapHistogram gaps_;
  TimePoint last_;
  bool called_ = false;
};

}  // namespace sluice
