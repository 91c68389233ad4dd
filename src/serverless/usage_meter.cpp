#include "serverless/usage_meter.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, kMemoryKinds> kKindNames = {"host", "device", "disk"};

std::size_t kind_index(MemoryKind kind) { return static_cast<std::size_t>(kind); }

Amount nanoseconds_between(TimePoint from, TimePoint to) {
  CHECK(to >= from);
  return (to - from).count();
}

}  // namespace

std::string_view memory_kind_name(MemoryKind kind) { return kKindNames[kind_index(kind)]; }

UsageMeter::UsageMeter(const MachineCapacity& capacity, TimePoint start)
    : capacity_(capacity),
      platform_since_(start),
      free_(capacity.bytes),
      free_cores_(capacity.cores) {}

void UsageMeter::set_capacity(TimePoint now, const MachineCapacity& capacity) {
  settle_platform(now);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    free_[k] += capacity.bytes[k] - capacity_.bytes[k];
    CHECK(free_[k] >= 0);
  }
  free_cores_ += capacity.cores - capacity_.cores;
  CHECK(free_cores_ >= 0);
  capacity_ = capacity;
}

std::int32_t UsageMeter::add_function() {
  functions_.emplace_back();
  functions_.back().since = platform_since_;
  return static_cast<std::int32_t>(functions_.size()) - 1;
}

std::int32_t UsageMeter::add_share(MemoryKind kind) {
  shares_.push_back({kind, 0, 0, 0, platform_since_});
  return static_cast<std::int32_t>(shares_.size()) - 1;
}

UsageMeter::Function& UsageMeter::function_at(std::int32_t function) {
  return functions_[static_cast<std::size_t>(function)];
}

UsageMeter::Share& UsageMeter::share_at(std::int32_t share) {
  return shares_[static_cast<std::size_t>(share)];
}

void UsageMeter::settle_platform(TimePoint now) {
  const Amount time = nanoseconds_between(platform_since_, now);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) platform_.memory[k].idle += free_[k] * time;
  platform_.core_ns += free_cores_ * time;
  platform_since_ = now;
}

// The platform has the remainder of a split, and all of a share without functions.
void UsageMeter::settle(Share& share, TimePoint now) {
  const Amount total = share.bytes * nanoseconds_between(share.since, now);
  const Amount each = share.joined == 0 ? 0 : total / share.joined;
  share.for_each += each;
  platform_.memory[kind_index(share.kind)].idle += total - each * share.joined;
  share.since = now;
}

void UsageMeter::settle(Function& function, TimePoint now) {
  const Amount time = nanoseconds_between(function.since, now);
  const auto add = [&](std::size_t kind, Amount amount) {
    ByteTime& memory = function.usage.memory[kind];
    (function.active ? memory.active : memory.idle) += amount;
  };
  for (std::size_t k = 0; k < kMemoryKinds; ++k) add(k, function.bytes[k] * time);
  for (Joined& joined : function.joined) {
    Share& share = share_at(joined.share);
    settle(share, now);
    add(kind_index(share.kind), share.for_each - joined.seen);
    joined.seen = share.for_each;
  }
  function.usage.core_ns += function.cores * time;
  function.since = now;
}

void UsageMeter::set_bytes(TimePoint now, std::int32_t function, MemoryKind kind,
                           std::int64_t bytes) {
  CHECK(bytes >= 0);
  Function& one = function_at(function);
  settle(one, now);
  settle_platform(now);
  std::int64_t& own = one.bytes[kind_index(kind)];
  free_[kind_index(kind)] -= bytes - own;
  CHECK(free_[kind_index(kind)] >= 0);
  own = bytes;
}

void UsageMeter::set_share_bytes(TimePoint now, std::int32_t share, std::int64_t bytes) {
  CHECK(bytes >= 0);
  Share& one = share_at(share);
  settle(one, now);
  settle_platform(now);
  free_[kind_index(one.kind)] -= bytes - one.bytes;
  CHECK(free_[kind_index(one.kind)] >= 0);
  one.bytes = bytes;
}

void UsageMeter::join(TimePoint now, std::int32_t function, std::int32_t share) {
  Function& one = function_at(function);
  settle(one, now);
  settle(share_at(share), now);
  CHECK(std::ranges::find(one.joined, share, &Joined::share) == one.joined.end());
  one.joined.push_back({share, share_at(share).for_each});
  ++share_at(share).joined;
}

void UsageMeter::leave(TimePoint now, std::int32_t function, std::int32_t share) {
  Function& one = function_at(function);
  settle(one, now);
  const auto it = std::ranges::find(one.joined, share, &Joined::share);
  CHECK(it != one.joined.end());
  one.joined.erase(it);
  --share_at(share).joined;
}

void UsageMeter::set_active(TimePoint now, std::int32_t function, bool active) {
  settle(function_at(function), now);
  function_at(function).active = active;
}

void UsageMeter::set_cores(TimePoint now, std::int32_t function, std::int32_t cores) {
  CHECK(cores >= 0);
  Function& one = function_at(function);
  settle(one, now);
  settle_platform(now);
  free_cores_ -= cores - one.cores;
  CHECK(free_cores_ >= 0);
  one.cores = cores;
}

void UsageMeter::charge_cores(TimePoint now, std::int32_t function, Amount core_ns) {
  CHECK(core_ns >= 0);
  settle_platform(now);
  const Amount charged = std::min(core_ns, platform_.core_ns);
  platform_.core_ns -= charged;
  function_at(function).usage.core_ns += charged;
}

void UsageMeter::count_request(std::int32_t function) { ++function_at(function).usage.requests; }

FunctionUsage UsageMeter::of(std::int32_t function, TimePoint now) {
  settle(function_at(function), now);
  return function_at(function).usage;
}

FunctionUsage UsageMeter::platform(TimePoint now) {
  settle_platform(now);
  for (Share& share : shares_) settle(share, now);
  return platform_;
}

}  // namespace sluice
