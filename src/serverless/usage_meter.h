// UsageMeter: how much of one machine each function has used: core time of turns, byte-time of
// memories, requests. The platform has all the rest: free memory, idle
// cores, shared memory that no function is joined to.
//
// Shared memory (a backbone) is split evenly over the functions that are joined to it. A function's
// bytes count as active while it is active (a request runs or waits), else as idle.
//
// Everything is counted in whole byte-nanoseconds and core-nanoseconds, so that nothing is lost:
// functions + platform = capacity x time, exactly, at any moment. The remainder of a split (less
// than a byte-nanosecond for each function and change) is the platform's.
//
// Owner: the gateway or the simulator. One thread. The time must not fall. Allocation: when
// functions and shares are added.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace sluice {

__extension__ typedef __int128 Amount;  // byte-nanoseconds or core-nanoseconds; never negative

enum class MemoryKind : std::uint8_t { kHost, kDevice, kDisk };
inline constexpr std::size_t kMemoryKinds = 3;
std::string_view memory_kind_name(MemoryKind kind);  // "host"

struct ByteTime {
  Amount active = 0;
  Amount idle = 0;
};

struct FunctionUsage {
  Amount core_ns = 0;
  std::array<ByteTime, kMemoryKinds> memory{};  // the platform's is all idle
  std::int64_t requests = 0;
};

struct MachineCapacity {
  std::int32_t cores = 0;
  std::array<std::int64_t, kMemoryKinds> bytes{};
};

class UsageMeter {
 public:
  UsageMeter(const MachineCapacity& capacity, TimePoint start);

  // The machine has more or less from now on. REQUIRES: at least what functions and shares have.
  void set_capacity(TimePoint now, const MachineCapacity& capacity);

  // Indices count from 0. A function or share uses nothing at first.
  std::int32_t add_function();
  std::int32_t add_share(MemoryKind kind);

  // Bytes of the function's own. REQUIRES: all bytes of the kind stay within the capacity.
  void set_bytes(TimePoint now, std::int32_t function, MemoryKind kind, std::int64_t bytes);
  void set_share_bytes(TimePoint now, std::int32_t share, std::int64_t bytes);
  // REQUIRES: not joined / joined.
  void join(TimePoint now, std::int32_t function, std::int32_t share);
  void leave(TimePoint now, std::int32_t function, std::int32_t share);
  void set_active(TimePoint now, std::int32_t function, bool active);
  // Cores that the function computes on now. REQUIRES: those of all functions are within capacity.
  void set_cores(TimePoint now, std::int32_t function, std::int32_t cores);
  // Core time that the function has used besides set_cores(), taken from that of idle cores; at
  // most what these have had so far.
  void charge_cores(TimePoint now, std::int32_t function, Amount core_ns);
  void count_request(std::int32_t function);

  // Up to `now`.
  FunctionUsage of(std::int32_t function, TimePoint now);
  FunctionUsage platform(TimePoint now);

 private:
  struct Share {
    MemoryKind kind{};
    std::int64_t bytes = 0;
    std::int32_t joined = 0;
    Amount for_each = 0;  // byte-nanoseconds that each joined function has got since the start
    TimePoint since;
  };
  struct Joined {
    std::int32_t share = 0;
    Amount seen = 0;  // of Share::for_each
  };
  struct Function {
    FunctionUsage usage;
    TimePoint since;
    std::array<std::int64_t, kMemoryKinds> bytes{};
    std::vector<Joined> joined;
    std::int32_t cores = 0;
    bool active = false;
  };

  Function& function_at(std::int32_t function);
  Share& share_at(std::int32_t share);
  // Bring the counters of one of them up to `now`.
  void settle(Function& function, TimePoint now);
  void settle(Share& share, TimePoint now);
  void settle_platform(TimePoint now);

  MachineCapacity capacity_;
  std::vector<Function> functions_;
  std::vector<Share> shares_;
  FunctionUsage platform_;
  TimePoint platform_since_;
  std::array<std::int64_t, kMemoryKinds> free_{};  // neither of a function nor of a share
  std::int32_t free_cores_ = 0;
};

}  // namespace sluice
