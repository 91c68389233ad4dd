// LogitsTap: shows rows of logits of the whole vocabulary, as the model computed them. For
// commands that compare two starts bit for bit. The model runner implements it.
// Owner: the engine's executor. Threads: the engine's thread.
#pragma once

#include <functional>
#include <span>

namespace sluice {

class LogitsTap {
 public:
  using Look = std::function<void(std::span<const float> row)>;

  virtual ~LogitsTap() = default;
  // `look` is called with each row that the host samples (all rows on a synchronous device; rows
  // with log-probabilities on every device), before the row is sampled. Empty: not any more.
  virtual void watch_logits(Look look) = 0;
};

}  // namespace sluice
