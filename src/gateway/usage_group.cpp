#include "gateway/usage_group.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sluice {
namespace {

auto usage_key(const UsageRow& row) { return std::tie(row.day, row.tenant, row.function); }

}  // namespace

std::vector<UsageRow> merge_usage(std::vector<UsageRow> rows) {
  std::ranges::sort(rows, {}, usage_key);
  std::vector<UsageRow> merged;
  for (UsageRow& row : rows) {
    if (merged.empty() || usage_key(merged.back()) != usage_key(row)) {
      merged.push_back(std::move(row));
      continue;
    }
    UsageRow& sum = merged.back();
    add_usage(row.usage, sum.usage);
    sum.prompt_tokens += row.prompt_tokens;
    sum.output_tokens += row.output_tokens;
  }
  return merged;
}

}  // namespace sluice
