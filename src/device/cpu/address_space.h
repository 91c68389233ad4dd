// AddressSpace: ranges of virtual memory at fixed bases, backed piece by piece. An address that is
// not backed has no access (PROT_NONE), so a touch of it faults.
//
// Bases are slots of 256 GiB from 0x550000000000 on, clear of the shadow and heap areas of the
// address, thread and memory sanitizers. The first slot is below the addresses at which the kernel
// loads executables; one or two of the other five contain this process's executable. reserve()
// skips a slot in which the range does not fit.
// The series is the same in every process, so that captured pointers stay valid.
// Threads: not synchronised; only the device's owner calls.
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
  // The size of a transparent huge page, so that regions can use them.
  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

  // Rounds `bytes` up to the granularity. kInvalidArgument for 0 bytes, kUnavailable when no slot
  // has room.
  Result<AddressRange> reserve(std::size_t bytes) const;
  // The same at the first address of a slot. kUnavailable for any other base, or when the range is
  // taken.
  Result<AddressRange> reserve_at(std::byte* base, std::size_t bytes) const;
  void release(AddressRange range) const;

  // As in device.h, for kMemory, kFile and kShared. Memory is mapped, not touched: its pages come
  // from the system when they are first written.
  // REQUIRES for all: `offset` is a multiple of the granularity, and the piece lies in the range.
  Status back(AddressRange range, std::size_t offset, std::size_t bytes,
              const Backing& backing) const;
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) const;
  Status populate(AddressRange range, std::size_t offset, std::size_t bytes) const;
  void discard(AddressRange range, std::size_t offset, std::size_t bytes) const;
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) const;
};

}  // namespace sluice
