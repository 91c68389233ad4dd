// Counts how much of a step's computation is padding: kernels work in tiles, and a graph may
// compute all rows of its capacity. The host counts, in integers, from shapes alone. Values; any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "device/op_params.h"

namespace sluice {

struct Work {
  std::int64_t used = 0;
  std::int64_t computed = 0;  // used plus padding

  Work& operator+=(const Work& other) {
    used += other.used;
    computed += other.computed;
    return *this;
  }
  friend bool operator==(const Work&, const Work&) = default;
};

// The useful work of attention of one layer: pairs of a query (of one token and head) and a key
// that the query sees.
std::int64_t attention_pairs(const AttentionPlanParams& p);

// The matrix products of a forward pass, grouped by how they round up their rows.
class ProductRows {
 public:
  void clear() { kinds_.clear(); }

  // A product of `rows`, computed in multiples of `multiple` rows.
  void add(const RowCount& rows, std::int32_t multiple);

  // Rows of all products that read their number of rows from `value`, if that number is `rows`.
  Work work(const std::int32_t* value, std::int32_t rows) const;

 private:
  // Equal products are counted together; there are few kinds.
  struct Kind {
    const std::int32_t* value = nullptr;
    std::int32_t multiple = 1;
    std::int32_t products = 0;
  };
  std::vector<Kind> kinds_;
};

}  // namespace sluice
