#include "device/padding.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

std::int64_t attention_pairs(const AttentionPlanParams& p) {
  std::int64_t pairs = 0;
  for (std::int32_t row = 0; row < p.num_seqs; ++row) {
    const std::int64_t queries = p.cu_seqlens_q[row + 1] - p.cu_seqlens_q[row];
    const std::int64_t end = p.seq_lens[row];
    // Each query up to the window's length sees one key more than the one before; later queries see
    // `window` keys.
    const std::int64_t window = p.limits.window > 0 ? p.limits.window : end;
    const std::int64_t first = end - queries + 1;  // keys of the first query, without a window
    const std::int64_t last = std::max(std::min(end, window), first - 1);
    pairs += (first + last) * (last - first + 1) / 2 + (end - last) * window;
  }
  return pairs * p.limits.num_heads;
}

void ProductRows::add(const RowCount& rows, std::int32_t multiple) {
  CHECK(multiple > 0);
  for (Kind& kind : kinds_) {
    if (kind.value != rows.value || kind.multiple != multiple) continue;
    ++kind.products;
    return;
  }
  kinds_.push_back({rows.value, multiple, 1});
}

Work ProductRows::work(const std::int32_t* value, std::int32_t rows) const {
  Work work;
  for (const Kind& kind : kinds_) {
    if (kind.value != value) continue;
    const std::int64_t multiples = (std::int64_t{rows} + kind.multiple - 1) / kind.multiple;
    work += {std::int64_t{rows} * kind.products, multiples * kind.multiple * kind.products};
  }
  return work;
}

}  // namespace sluice
