// UsageGroup: what a UsageKeeper knows of a group of gateways: it tells the group which rows its
// file has, and asks for the rows of the other gateways.
// Owner: the command. Threads: calls come from the keeper's.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gateway/usage_row.h"

namespace sluice {

class UsageGroup {
 public:
  virtual ~UsageGroup() = default;
  // The file has these rows now.
  virtual void written(std::span<const UsageRow> rows) = 0;
  // Gets the rows of the other gateways, of the days from `first` to `last`. `done` is called once,
  // on any thread, or never once the group has stopped.
  using Done = std::function<void(Result<std::vector<UsageRow>> rows)>;
  virtual void read(std::string first, std::string last, Done done) = 0;
};

// The sums of rows of the same day, tenant and function, in this order.
std::vector<UsageRow> merge_usage(std::vector<UsageRow> rows);

}  // namespace sluice
