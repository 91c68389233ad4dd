// KvMemory: backs the KV region with memory. It starts with one chunk, grows by whole chunks when
// the scheduler asks for more blocks, and returns memory when the scheduler asks for fewer.
// Addresses never change, so graphs stay valid.
//
// Growth only maps memory; the system supplies a page when it is first written, so a step pays for
// the pages that it uses and for no others, unless touch() took them before. Growth leaves
// kKeptFreeHostBytes of the host's memory free. Owner: the model runner. Threads: the engine's
// thread. Only growth allocates: it reads how much memory the system has free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "device/arena.h"
#include "device/device.h"

namespace sluice {

class KvMemory {
 public:
  // The smallest growth; a device with a larger granularity grows by that.
  static constexpr std::size_t kChunkBytes = std::size_t{16} << 20;

  // Blocks in one chunk; at least one.
  static std::int32_t chunk_blocks(const DeviceTraits& traits, std::int64_t block_bytes);
  // Blocks of the first chunk: at most `max_blocks` and at least two (block 0 is never used).
  static std::int32_t first_blocks(const DeviceTraits& traits, std::int64_t block_bytes,
                                   std::int32_t max_blocks);

  KvMemory() = default;
  // `max_blocks`: what the region is reserved for. REQUIRES: arena and device outlive it.
  KvMemory(Arena& arena, Device& device, std::int64_t block_bytes, std::int32_t max_blocks)
      : arena_(&arena), device_(&device), block_bytes_(block_bytes), max_blocks_(max_blocks) {}

  // Backs memory for at least `blocks`. On an error nothing changes.
  Status start(std::int32_t blocks);
  // Takes the pages of what is backed from the system, so that no step waits for them.
  Status touch();
  // The same, but does not return an error: growth_failed() is then true until the next call.
  void grow(std::int32_t blocks);
  // Reduces backed_blocks() to at most `blocks`. release() returns the memory.
  void shrink(std::int32_t blocks);
  // Returns the memory after the first backed_blocks() blocks to the system. REQUIRES: all work
  // that may use it has run.
  void release();
  bool must_release() const { return must_release_; }

  std::int32_t backed_blocks() const { return backed_blocks_; }
  // Blocks whose memory the system does not have: after shrink() all, until release().
  std::int32_t held_blocks() const;
  bool growth_failed() const { return growth_failed_; }

 private:
  std::size_t bytes_for(std::int32_t blocks) const;
  std::int32_t blocks_in(std::size_t bytes) const;
  Status check_free(std::size_t bytes) const;

  Arena* arena_ = nullptr;
  Device* device_ = nullptr;
  std::int64_t block_bytes_ = 0;
  std::int32_t max_blocks_ = 0;
  std::int32_t backed_blocks_ = 0;
  bool growth_failed_ = false;
  bool must_release_ = false;
};

}  // namespace sluice
