// How much of what a step computes nobody needs: kernels work in tiles, and a graph for more rows
// than a step has may compute them all. Counted on the host, as integers, from shapes alone.
// Values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "device/op_params.h"

namespace sluice {

struct Work {
  std::int64_t used = 0;
  std::int64_t computed = 0;  // used and padding

  Work& operator+=(const Work& other) {
    used += other.used;
    computed += other.computed;
    return *this;
  }
  friend bool operator==(const Work&, const Work&) = default;
};

// What attention of one layer has to do: pairs of a query, of a token and a head, and a key that it
// sees.
std::int64_t attention_pairs(const AttentionPlanParams& p);

// The matrix products of a forward, by how they deal with rows.
class ProductRows {
 public:
  void clear() { kinds_.clear(); }

  // A product of so many rows, which are computed in multiples of `multiple`.
  void add(const RowCount& rows, std::int32_t multiple);

  // Rows of all products that find their number at `value`, when it is `rows`.
  Work work(const std::int32_t* value, std::int32_t rows) const;

 private:
  // Alike products are counted; there are few kinds.
  struct Kind {
    const std::int32_t* value = nullptr;
    std::int32_t multiple = 1;
    std::int32_t products = 0;
  };
  std::vector<Kind> kinds_;
};

}  // namespace sluice
