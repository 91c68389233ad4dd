// Arena: one reserved address range of a device, laid out by name. The layout is planned first
// (ArenaPlan: pure numbers, the same in every process for the same inputs) and then mapped, so that
// a snapshot can name any address as (region, offset).
//
//   weights | adapters | inputs | workspace | kv        in this order; KV last, free to grow
//
// A region has a reserved size. A prefix of it is backed with memory; the prefix grows and shrinks
// while addresses stay the same. After the prefix, pieces may be backed with files, shared memory
// or imported chunks. Buffers are named pieces of a region, `model/buffer` by convention, so that
// several models can live in one process.
// Owner: the engine. Threads: the engine's thread; addresses may be read by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

enum class RegionKind : std::uint8_t { kWeights, kAdapters, kInputs, kWorkspace, kKv };
inline constexpr std::size_t kNumRegions = 5;

// "weights", "adapters", ...: the names in messages and snapshot files.
std::string_view region_name(RegionKind kind);

struct BufferPlan {
  std::string name;
  std::size_t offset = 0;  // within the region
  std::size_t bytes = 0;
  friend bool operator==(const BufferPlan&, const BufferPlan&) = default;
};

struct RegionPlan {
  RegionKind kind = RegionKind::kWeights;
  std::size_t offset = 0;    // within the arena, set by finish()
  std::size_t reserved = 0;  // bytes of address space
  std::vector<BufferPlan> buffers;
  friend bool operator==(const RegionPlan&, const RegionPlan&) = default;
};

// Collects buffers, then fixes offsets. Plain data after finish(); comparable and serializable.
class ArenaPlan {
 public:
  ArenaPlan();

  // Appends a buffer, aligned to `alignment` (a power of two, at least 64). Returns its offset in
  // the region. CHECKs that the name is new.
  std::size_t add(RegionKind region, std::string name, std::size_t bytes,
                  std::size_t alignment = 64);
  // Reserves at least `bytes` of address space for a region, even when its buffers need less.
  void reserve(RegionKind region, std::size_t bytes);
  // Lays out the regions one after another, each at a multiple of `granularity`.
  void finish(std::size_t granularity);

  const RegionPlan& region(RegionKind kind) const;
  bool finished() const { return finished_; }
  std::size_t total_bytes() const { return total_bytes_; }
  friend bool operator==(const ArenaPlan&, const ArenaPlan&) = default;

 private:
  std::vector<RegionPlan> regions_;  // one per kind, in order
  std::size_t total_bytes_ = 0;
  bool finished_ = false;
};

// An address by names, which stays valid when the arena has another base.
struct ArenaPlace {
  RegionKind region = RegionKind::kWeights;
  std::string_view buffer;  // valid as long as the arena
  std::size_t offset = 0;   // within the buffer
  friend bool operator==(const ArenaPlace&, const ArenaPlace&) = default;
};

class Arena {
 public:
  // Reserves the plan's range at the device's first free base. Nothing is backed yet. The device
  // must outlive the arena.
  // REQUIRES: the plan is finished, with a multiple of the device's granularity.
  static Result<Arena> create(Device& device, ArenaPlan plan);
  // The same at one base: see Device::reserve_at.
  static Result<Arena> create_at(std::byte* base, Device& device, ArenaPlan plan);
  // The same at the first free base that is another one.
  static Result<Arena> create_elsewhere(const std::byte* base, Device& device, ArenaPlan plan);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  const ArenaPlan& plan() const { return plan_; }
  std::byte* base() const { return range_.base; }
  std::byte* region_base(RegionKind kind) const;
  // CHECKs that the buffer exists.
  std::byte* address(RegionKind kind, std::string_view buffer) const;
  // The buffer that contains an address; nothing if no buffer does.
  std::optional<ArenaPlace> find(const void* address) const;
  // The inverse; null if this arena has no such buffer or the buffer is shorter.
  std::byte* address(const ArenaPlace& place) const;

  // Backs the region's first `bytes` (rounded up to the granularity) with memory; pieces that are
  // already backed stay. kResourceExhausted beyond the reserved size or when the device has no
  // memory; the backing is then unchanged.
  Status grow(RegionKind kind, std::size_t bytes);
  // Returns the memory after the first `bytes` to the system. REQUIRES: as Device::unback.
  void shrink(RegionKind kind, std::size_t bytes);
  // Takes the memory of all pages that grow() backed from the system. Errors as Device::populate.
  Status populate(RegionKind kind);
  // Returns the memory of a region's pages to the system until they are written again; the contents
  // are lost. REQUIRES: as Device::discard.
  void discard(RegionKind kind);
  std::size_t backed_bytes(RegionKind kind) const;

  // Backs `bytes` at `offset` (a multiple of the granularity) of a region with any Backing that the
  // device supports. unmap() with the same offset returns the piece. REQUIRES: the piece is
  // reserved, neither backed nor mapped.
  Status map(RegionKind kind, std::size_t offset, std::size_t bytes, const Backing& backing);
  void unmap(RegionKind kind, std::size_t offset);

  // A descriptor for the granule at `offset` of the memory that grow() backed. Errors as
  // Device::export_memory.
  Result<FileDescriptor> export_memory(RegionKind kind, std::size_t offset) const;

  // Sets the protection of the memory that grow() backed.
  Status protect(RegionKind kind, Protection protection);

 private:
  struct Mapping {
    std::size_t offset = 0;  // within the arena
    std::size_t bytes = 0;
  };
  Arena(Device& device, ArenaPlan plan, AddressRange range);
  void release();
  std::size_t offset_of(RegionKind kind) const;

  Device* device_ = nullptr;
  ArenaPlan plan_;
  AddressRange range_;
  std::vector<std::size_t> backed_;  // per region, prefix in bytes
  std::vector<Mapping> mappings_;
};

}  // namespace sluice
