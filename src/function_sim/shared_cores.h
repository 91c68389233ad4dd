// SharedCores: when the work of functions at one place ends, in virtual time. A device computes all
// work at its full speed. On cores, functions take turns (src/function): with k functions at work,
// each has a kth of the time, and all work of one function goes on in its turns.
// Owner: FunctionSimulation. One thread. The time must not fall.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace sluice {

class SharedCores {
 public:
  struct Work {
    std::int32_t function = 0;
    std::int32_t call = -1;  // the caller's
  };

  explicit SharedCores(bool turns) : turns_(turns) {}

  // `length`: without other functions.
  void add(TimePoint now, Work work, Duration length);
  // When the first work ends if no other is added; nothing: there is none.
  std::optional<TimePoint> next_end() const;
  // Takes work that has ended; works of one time in the order of add().
  std::optional<Work> take_ended(TimePoint now);

 private:
  struct Item {
    double end = 0;  // of own_ns_
    std::int64_t order = 0;
    Work work;
    friend bool operator>(const Item& a, const Item& b) {
      return std::pair(a.end, a.order) > std::pair(b.end, b.order);
    }
  };
  double functions() const;
  void advance(TimePoint now);

  bool turns_;
  TimePoint now_;
  double own_ns_ = 0;  // that each function at work has had since the start
  std::int64_t next_order_ = 0;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> items_;
  std::unordered_map<std::int32_t, std::int32_t> works_of_;  // by function at work
};

}  // namespace sluice
