// AddressSpace: ranges of virtual memory at fixed bases, backed piece by piece.
//
// Bases are slots of 256 GiB from 0x550000000000 on, clear of the shadow and heap areas of the
// address, thread and memory sanitizers. The first slot lies below where the kernel loads
// executables; one or two of the other five hold this process's. A slot that is taken means the
// next, whatever its range leaves of it.
// The series is the same in every process, so that captured pointers stay valid.
// Threads: not synchronised; the device's owner calls.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

class AddressSpace {
 public:
  static constexpr std::size_t kFirstBase = 0x550000000000;
  static constexpr std::size_t kSlotBytes = std::size_t{256} << 30;
  static constexpr int kNumSlots = 6;  // up to 0x568000000000: more would leave tsan's range
  // A transparent huge page, so that regions may be made of them.
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  // Rounds `bytes` up to the granularity. kInvalidArgument for 0 bytes, kUnavailable when no slot
  // has room.
  Result<AddressRange> reserve(std::size_t bytes) const;
  void release(AddressRange range) const;

  // REQUIRES for all: multiples of the granularity, inside the range. `bytes` of a file may be any
  // number above 0: pages wholly behind it stay without access.
  Status back(AddressRange range, std::size_t offset, std::size_t bytes) const;
  Status back_with_file(AddressRange range, std::size_t offset, int fd, std::size_t bytes) const;
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) const;
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) const;
};

}  // namespace sluice
