#include "engine/kv_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace sluice {
namespace {

std::size_t chunk_bytes(const DeviceTraits& traits) {
  return std::max(KvMemory::kChunkBytes, traits.granularity);
}

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

std::int32_t KvMemory::chunk_blocks(const DeviceTraits& traits, std::int64_t block_bytes) {
  const std::int64_t blocks = static_cast<std::int64_t>(chunk_bytes(traits)) / block_bytes;
  return static_cast<std::int32_t>(std::max<std::int64_t>(blocks, 1));
}

std::int32_t KvMemory::first_blocks(const DeviceTraits& traits, std::int64_t block_bytes,
                                    std::int32_t max_blocks) {
  return std::clamp(chunk_blocks(traits, block_bytes), 2, std::max(max_blocks, 2));
}

// Rounds up to whole chunks, but not beyond the region's end: the last chunk may be shorter.
std::size_t KvMemory::bytes_for(std::int32_t blocks) const {
  const std::size_t wanted =
      static_cast<std::size_t>(blocks) * static_cast<std::size_t>(block_bytes_);
  return std::min(round_up(wanted, chunk_bytes(device_->traits())),
                  arena_->plan().region(RegionKind::kKv).reserved);
}

std::int32_t KvMemory::blocks_in(std::size_t bytes) const {
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(static_cast<std::int64_t>(bytes) / block_bytes_, max_blocks_));
}

// A device with its own memory refuses by itself.
Status KvMemory::check_free(std::size_t bytes) const {
  if (!device_->traits().host_accessible) return {};
  const auto info = device_->memory_info();
  if (!info || info->spare_host_bytes() >= static_cast<std::int64_t>(bytes)) return {};
  return resource_exhausted(
      fmt::format("{} MiB requested, {} MiB are free, of which {} MiB are kept free", bytes >> 20,
                  info->free_bytes >> 20, kKeptFreeHostBytes >> 20));
}

Status KvMemory::start(std::int32_t blocks) {
  CHECK(blocks <= max_blocks_);
  const std::size_t before = arena_->backed_bytes(RegionKind::kKv);
  const std::size_t target = bytes_for(blocks);
  if (target > before) {
    RETURN_IF_ERROR(check_free(target - before));
    RETURN_IF_ERROR(arena_->grow(RegionKind::kKv, target));
  }
  must_release_ = false;
  backed_blocks_ = blocks_in(arena_->backed_bytes(RegionKind::kKv));
  return {};
}

Status KvMemory::touch() { return arena_->populate(RegionKind::kKv); }

void KvMemory::grow(std::int32_t blocks) {
  const bool failed_before = growth_failed_;
  const Status status = start(blocks);
  growth_failed_ = !status;
  if (status || failed_before) return;
  log_warning(
      fmt::format("KV memory cannot grow to {} blocks: {}; cached blocks are evicted instead",
                  blocks, status.error().message));
}

void KvMemory::shrink(std::int32_t blocks) {
  CHECK(blocks <= backed_blocks_);
  backed_blocks_ = blocks;
  growth_failed_ = false;
  must_release_ = bytes_for(blocks) < arena_->backed_bytes(RegionKind::kKv);
}

std::int32_t KvMemory::held_blocks() const {
  return must_release_ ? blocks_in(arena_->backed_bytes(RegionKind::kKv)) : backed_blocks_;
}

void KvMemory::release() {
  arena_->shrink(RegionKind::kKv, bytes_for(backed_blocks_));
  must_release_ = false;
}

}  // namespace sluice
