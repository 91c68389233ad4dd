// MemfdChunks: DeviceChunks as files of memory, for tests of lenders and borrowers without a GPU.
// As on a GPU, a descriptor crosses to another process, and memory is there as long as a process
// holds it. Owner: a test, or what it starts. Threads: any.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/shared_memory.h"
#include "device/device_chunks.h"
#include "offload/file_io.h"

namespace sluice::test {

class MemfdChunks final : public DeviceChunks {
 public:
  static constexpr std::int64_t kChunk = 16 * 4096;

  explicit MemfdChunks(std::int64_t bytes) : chunks_(bytes / kChunk) {}

  std::int64_t chunk_bytes() const override { return kChunk; }
  std::int64_t chunks() const override { return chunks_; }
  Result<std::int64_t> free_bytes() const override { return std::int64_t{1} << 40; }

  Result<FileDescriptor> make(std::int64_t chunk) override {
    ASSIGN_OR_RETURN(FileDescriptor made, create_shared_memory("chunk", kChunk));
    RETURN_IF_ERROR(import(chunk, made.get()));
    return made;
  }
  Status import(std::int64_t chunk, int descriptor) override {
    const std::lock_guard lock(mutex_);
    CHECK(chunk >= 0 && chunk < chunks_ && !held_.contains(chunk));
    if (refuses_imports) return unsupported("no peer access");
    held_[chunk] = FileDescriptor(::dup(descriptor));
    return {};
  }
  void drop(std::int64_t chunk) override {
    if (before_drop) before_drop();
    const std::lock_guard lock(mutex_);
    CHECK(held_.erase(chunk) == 1);
  }

  Status write(std::uint64_t offset, std::span<const std::byte> source) override {
    return copy(offset, source.size(),
                [&](int fd, std::size_t from, std::size_t bytes, std::uint64_t at) {
                  return write_at(fd, source.subspan(from, bytes), at);
                });
  }
  Status read(std::uint64_t offset, std::span<std::byte> target) override {
    return copy(offset, target.size(),
                [&](int fd, std::size_t from, std::size_t bytes, std::uint64_t at) {
                  return read_at(fd, target.subspan(from, bytes), at);
                });
  }

  bool refuses_imports = false;
  std::function<void()> before_drop;

 private:
  Status copy(std::uint64_t offset, std::size_t bytes, const auto& part) {
    const std::lock_guard lock(mutex_);
    for (std::size_t done = 0; done < bytes;) {
      const std::uint64_t at = (offset + done) % kChunk;
      const auto found = held_.find(static_cast<std::int64_t>((offset + done) / kChunk));
      CHECK(found != held_.end());  // as a GPU would fault
      const std::size_t now = std::min<std::size_t>(bytes - done, kChunk - at);
      if (!part(found->second.get(), done, now, at)) return unavailable("no copy");
      done += now;
    }
    return {};
  }

  const std::int64_t chunks_;
  std::mutex mutex_;
  std::map<std::int64_t, FileDescriptor> held_;
};

}  // namespace sluice::test
