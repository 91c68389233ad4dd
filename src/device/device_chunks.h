// DeviceChunks: memory of a device, in chunks that processes share, mapped beside the engine's own
// memory. Chunk i has the offsets [i, i + 1) * chunk_bytes(). It is made here, and its descriptor
// crosses to another process; or it is imported from there.
//
// A process cannot take a chunk from another one that maps it. The device has the memory again once
// no process holds the chunk: each has dropped it, or has ended.
// Copies run on streams of their own and have ended when the call returns.
// Owner: the side that lends or borrows. Threads: any. Units: bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

class DeviceChunks {
 public:
  virtual ~DeviceChunks() = default;  // drops all chunks

  virtual std::int64_t chunk_bytes() const = 0;
  virtual std::int64_t chunks() const = 0;              // there is a place for so many
  virtual Result<std::int64_t> free_bytes() const = 0;  // that the device can still give

  // Takes zeroed memory of the device for a chunk. kResourceExhausted when there is none,
  // kUnsupported where it cannot be exported. REQUIRES: the place is empty.
  virtual Result<FileDescriptor> make(std::int64_t chunk) = 0;
  // Maps a chunk that another process made. The caller keeps the descriptor. REQUIRES: as make().
  virtual Status import(std::int64_t chunk, int descriptor) = 0;
  // REQUIRES: the chunk was made or imported, and no copy of it is under way.
  virtual void drop(std::int64_t chunk) = 0;

  // REQUIRES: all chunks of the range are here.
  virtual Status write(std::uint64_t offset, std::span<const std::byte> source) = 0;
  virtual Status read(std::uint64_t offset, std::span<std::byte> target) = 0;
};

// Opens places for `bytes` of memory, rounded down to whole chunks.
using OpenDeviceChunks = std::function<Result<std::unique_ptr<DeviceChunks>>(std::int64_t bytes)>;

}  // namespace sluice
