// WarmNames: the names of the blocks of warm prompts (warm_prompts.h), sorted. The engine's thread
// replaces them when a prompt's text changes, while workers read them.
// Owner: the served model. Threads: any.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/hash128.h"

namespace sluice {

class WarmNames {
 public:
  using Names = std::vector<Hash128>;

  // Never null; the names do not change. Shared: a worker keeps those that it began a prompt with.
  std::shared_ptr<const Names> get() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  void set(Names names) {
    auto replaced = std::make_shared<const Names>(std::move(names));  // shared as in get()
    const std::lock_guard lock(mutex_);
    names_.swap(replaced);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Names> names_ = std::make_shared<const Names>();  // shared as in get()
};

}  // namespace sluice
