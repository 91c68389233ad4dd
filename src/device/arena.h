// Arena: one reserved address range of a device, laid out by name. The layout is planned first
// (ArenaPlan: pure numbers, the same in every process for the same inputs) and then mapped, so
// that a snapshot can name any address as (region, offset).
//
//   weights | adapters | inputs | workspace | kv        in this order; KV last, free to grow
//
// A region has a reserved size, of which a prefix is backed. Buffers are named pieces of a region,
// `model/buffer` by convention, so that several models can live in one process.
// Owner: the engine. Threads: the engine's thread; addresses may be read by any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace sluice {

enum class RegionKind : std::uint8_t { kWeights, kAdapters, kInputs, kWorkspace, kKv };

struct BufferPlan {
  std::string name;
  std::size_t offset = 0;  // within the region
  std::size_t bytes = 0;
};

struct RegionPlan {
  RegionKind kind = RegionKind::kWeights;
  std::size_t offset = 0;    // within the arena, set by finish()
  std::size_t reserved = 0;  // bytes of address space
  std::vector<BufferPlan> buffers;
};

// Collects buffers, then fixes offsets. Plain data after finish(); comparable and serializable.
class ArenaPlan {
 public:
  // Appends a buffer, aligned to `alignment` (a power of two, at least 64). Returns its offset in
  // the region. CHECKs that the name is new.
  std::size_t add(RegionKind region, std::string name, std::size_t bytes,
                  std::size_t alignment = 64);
  // Reserves at least `bytes` of address space for a region, beyond what its buffers need.
  void reserve(RegionKind region, std::size_t bytes);
  // Lays the regions out one after the other, each at a multiple of `granularity`.
  void finish(std::size_t granularity);

  const RegionPlan& region(RegionKind kind) const;
  std::size_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<RegionPlan> regions_;
  std::size_t total_bytes_ = 0;
};

class Arena {
 public:
  // Reserves the plan's range. Nothing is backed yet. The device must outlive the arena.
  static Result<Arena> create(Device& device, ArenaPlan plan);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  const ArenaPlan& plan() const { return plan_; }
  std::byte* region_base(RegionKind kind) const;
  // CHECKs that the buffer exists.
  std::byte* address(RegionKind kind, std::string_view buffer) const;

  // Backs the region's first `bytes` (rounded up to the granularity), keeping what is backed.
  Status grow(RegionKind kind, std::size_t bytes);
  // Gives back what lies behind the first `bytes`.
  void shrink(RegionKind kind, std::size_t bytes);
  std::size_t backed_bytes(RegionKind kind) const;
  // Maps a file, read-only, at `offset` (a multiple of the granularity) of a region.
  Status map_file(RegionKind kind, std::size_t offset, int fd, std::size_t bytes);
  Status protect(RegionKind kind, Protection protection);

 private:
  struct Mapping {
    std::size_t offset = 0;  // within the arena
    std::size_t bytes = 0;
  };
  Arena(Device& device, ArenaPlan plan, AddressRange range);

  Device* device_ = nullptr;
  ArenaPlan plan_;
  AddressRange range_;
  std::vector<std::size_t> backed_;  // per region, prefix in bytes
  std::vector<Mapping> file_mappings_;
};

}  // namespace sluice
