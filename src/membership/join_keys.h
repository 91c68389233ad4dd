// JoinKeys: the keys of the joins that a process has sent to a table of members, the last
// kMaxEarlierJoins of them. Each join names those before it, so that the table refuses a late copy
// of one, whether or not it was answered, and knows which joins are of this process.
// Owner: the process that joins. One thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

inline constexpr std::size_t kMaxEarlierJoins = 16;

class JoinKeys {
 public:
  std::vector<std::string> earlier() const { return {keys_.begin(), keys_.end()}; }
  void add(std::string key) {
    keys_.push_back(std::move(key));
    if (keys_.size() > kMaxEarlierJoins) keys_.pop_front();
  }

 private:
  std::deque<std::string> keys_;
};

}  // namespace sluice
