// PrefillMeter: how long prompts take from their dispatch to their first token, learned from those
// that were computed here. A prompt's time counts for its tokens together with those of the same
// function that lay ahead of it, so a queue inside an engine does not look like a slow machine. It
// has the load of the last prompts in it, so it rises when others use the machine.
//
// Owner: the gateway or the simulator, one for each set of prompts that compute alike. One thread.
// No allocation. The newest twenty or so prompts count.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "serverless/batching.h"

namespace sluice {

class PrefillMeter {
 public:
  // usual() is zero before as many prompts are known.
  static constexpr std::int64_t kEnough = 4;

  // `ahead`: tokens that were dispatched before and had no first token yet.
  // REQUIRES: tokens > 0, ahead >= 0 and took >= 0.
  void add(std::int64_t tokens, std::int64_t ahead, Duration took);
  // About nine of ten prompts take at most this, by their tokens and those ahead: the line of least
  // squares through the last ones, and twice their mean distance from it.
  PrefillTime usual() const;
  // The mean of the last prompts alone; 0 before the first one.
  double mean_tokens() const { return weight_ > 0 ? prompts_ / weight_ : 0; }

 private:
  PrefillTime line() const;

  std::int64_t count_ = 0;
  // Sums over prompts, weighted by age.
  double weight_ = 0;
  double prompts_ = 0;  // tokens, without those ahead
  double tokens_ = 0;   // with those ahead, as in the next ones
  double seconds_ = 0;
  double tokens_tokens_ = 0;
  double tokens_seconds_ = 0;
  double distance_ = 0;  // from the line, as it was before each prompt
};

}  // namespace sluice
