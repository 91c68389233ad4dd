#include "lending/kv_division.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace sluice {
namespace {

// Takes up to `amount` from `values`, the largest first, so that those it takes from end at one
// level. Returns what each value loses.
std::vector<std::int64_t> take_from_largest(const std::vector<std::int64_t>& values,
                                            std::int64_t amount) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::ranges::greater{}, [&](std::size_t i) { return values[i]; });
  std::vector<std::int64_t> taken(values.size(), 0);
  for (std::size_t count = 1; count <= order.size() && amount > 0; ++count) {
    // The `count` largest are equal now; they come down to the next one together.
    const std::int64_t level = values[order[count - 1]] - taken[order[count - 1]];
    const std::int64_t next =
        count < order.size() ? std::max<std::int64_t>(values[order[count]], 0) : 0;
    if (level <= next) continue;
    std::int64_t step = std::min((level - next) * static_cast<std::int64_t>(count), amount);
    amount -= step;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t part = step / static_cast<std::int64_t>(count - i);
      taken[order[i]] += part;
      step -= part;
    }
  }
  return taken;
}

}  // namespace

struct KvDivision::Part {
  std::int64_t bytes = 0;  // of the pool; what the function has of its own is beside it
  std::int64_t held = 0;   // likewise, by its process
  std::int64_t used = 0;   // likewise
  std::int64_t want = 0;
  std::int64_t spare = 0;
};

std::vector<KvDivision::Part> KvDivision::look(TimePoint now, std::span<const Function> functions) {
  std::map<std::uint64_t, LendingPolicy> policies;
  std::vector<Part> parts;
  parts.reserve(functions.size());
  for (const Function& function : functions) {
    const auto known = policies_.find(function.id);
    LendingPolicy& policy =
        policies
            .emplace(function.id,
                     known != policies_.end() ? known->second : LendingPolicy(own(), most_of_one()))
            .first->second;
    const LendingWish wish = policy.decide(now, function.load);
    const auto above = [&](std::int64_t bytes) { return std::max<std::int64_t>(bytes - own(), 0); };
    parts.push_back({.bytes = above(function.load.limit),
                     .held = above(function.load.backed),
                     .used = above(function.load.used),
                     .want = wish.want,
                     .spare = wish.spare});
  }
  policies_ = std::move(policies);
  return parts;
}

// Takes parts away until they fit the pool.
void KvDivision::fit(std::int64_t pool, std::vector<Part>& parts) {
  const auto excess = [&] {
    std::int64_t sum = -pool;
    for (const Part& part : parts) sum += part.bytes;
    return std::max<std::int64_t>(sum, 0);
  };
  std::vector<std::int64_t> unused;
  for (const Part& part : parts) {
    unused.push_back(std::max<std::int64_t>(part.bytes - part.used, 0));
  }
  const auto first = take_from_largest(unused, excess());
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].bytes -= first[i];
  std::vector<std::int64_t> all;
  for (const Part& part : parts) all.push_back(part.bytes);
  const auto rest = take_from_largest(all, excess());
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].bytes -= rest[i];
}

// Gives what is free to those that lack memory, the smallest part first. Returns what is lacking
// then; `want` has it for each.
std::int64_t KvDivision::give(std::int64_t free, std::vector<Part>& parts) {
  std::vector<Part*> order;
  for (Part& part : parts) {
    if (part.want > 0) order.push_back(&part);
  }
  std::ranges::sort(order, {}, &Part::bytes);
  std::int64_t missing = 0;
  for (Part* const part : order) {
    const std::int64_t given = std::clamp<std::int64_t>(free, 0, part->want);
    part->bytes += given;
    part->want -= given;
    free -= given;
    missing += part->want;
  }
  return missing;
}

// Takes `missing` back from functions that can spare it, and from those above their share.
void KvDivision::take_back(std::int64_t pool, std::int64_t missing, std::vector<Part>& parts) {
  std::vector<std::int64_t> spare;
  for (const Part& part : parts) spare.push_back(std::min(part.spare, part.bytes));
  const auto first = take_from_largest(spare, missing);
  std::int64_t sharers = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].bytes -= first[i];
    missing -= first[i];
    if (parts[i].bytes > 0 || parts[i].want > 0) ++sharers;
  }
  if (sharers == 0) return;
  const std::int64_t share = pool / sharers;
  std::int64_t below = 0;
  std::vector<std::int64_t> beyond;
  for (const Part& part : parts) {
    below += std::clamp<std::int64_t>(share - part.bytes, 0, part.want);
    beyond.push_back(std::max<std::int64_t>(part.bytes - share, 0));
  }
  const auto second = take_from_largest(beyond, std::min(missing, below));
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].bytes -= second[i];
}

std::vector<std::int64_t> KvDivision::divide(TimePoint now, std::int64_t limit,
                                             std::span<const Function> functions,
                                             std::int64_t ending) {
  const std::int64_t pool = std::max<std::int64_t>(limit - own() * options_.places, 0);
  std::vector<Part> parts = look(now, functions);
  fit(pool, parts);
  std::int64_t taken = ending;
  std::int64_t coming = ending;  // what functions give back already
  for (const Part& part : parts) {
    taken += std::max(part.bytes, part.held);
    coming += std::max<std::int64_t>(part.held - part.bytes, 0);
  }
  const std::int64_t missing = std::max<std::int64_t>(give(pool - taken, parts) - coming, 0);
  std::int64_t before = 0;
  for (const Part& part : parts) before += part.bytes;
  if (missing > 0) take_back(pool, missing, parts);
  std::int64_t after = 0;
  std::vector<std::int64_t> limits;
  for (const Part& part : parts) {
    after += part.bytes;
    limits.push_back(own() + part.bytes);
  }
  unmet_ = missing - (before - after);
  return limits;
}

LendingLoad KvDivision::total(std::int64_t limit, std::span<const Function> functions,
                              std::int64_t ending) const {
  LendingLoad total;
  total.limit = limit;
  const std::int64_t places = options_.places;
  std::int64_t unused = std::max<std::int64_t>(places - std::ssize(functions), 0) * own();
  total.backed = own() * places + ending;
  for (const Function& function : functions) {
    total.used += function.load.used;
    unused += std::max<std::int64_t>(own() - function.load.used, 0);
    total.backed += std::max<std::int64_t>(function.load.backed - own(), 0);
    if (unmet_ > 0) total.waiting += function.load.waiting;
  }
  total.used += unused / 2;
  if (unmet_ > 0) total.waiting = std::max(total.waiting, 1);
  return total;
}

}  // namespace sluice
