// VirtualMemory: ranges of a GPU's address space at fixed bases, backed chunk by chunk with memory
// of this process, which can be exported, or with chunks that other processes exported.
//
// A chunk is one physical allocation and the unit of all calls. The device's granularity is the
// chunk's size, so chunks are always returned whole. Bases are a fixed series, the same in every
// process: slots of 256 GiB, first in the area that published work on fixed GPU addresses uses,
// then in two other areas. If the driver refuses all of them, it chooses the base, and a warning
// says so.
// Owner: the CUDA device. Threads: the engine's thread.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "base/result.h"
#include "device/cuda/gpu.h"
#include "device/device.h"

namespace sluice::cuda {

class VirtualMemory {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{64} << 20;
  static constexpr std::size_t kSlotBytes = std::size_t{256} << 30;
  static constexpr int kSlotsOfArea = 6;
  static constexpr std::size_t kAreas[] = {0x600000000000, 0x300000000000, 0x100000000000};

  static Result<VirtualMemory> create(Gpu& gpu);

  // Bytes of a chunk: kChunkBytes, rounded up to what the driver can map.
  std::size_t chunk_bytes() const { return chunk_bytes_; }

  // As in device.h. back() zeroes memory on the compute stream; work submitted to either queue
  // afterwards sees zeros. A read-only chunk of another process is writable, with a warning, if the
  // driver does not grant that. unback() waits for both streams.
  Result<AddressRange> reserve(std::size_t bytes);
  Result<AddressRange> reserve_at(std::byte* base, std::size_t bytes);
  // Where the driver likes: for memory whose addresses no graph has.
  Result<AddressRange> reserve_anywhere(std::size_t bytes);
  void release(AddressRange range);
  Status back(AddressRange range, std::size_t offset, std::size_t bytes, const Backing& backing);
  void unback(AddressRange range, std::size_t offset, std::size_t bytes);
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes, Protection protection);
  Result<FileDescriptor> export_memory(AddressRange range, std::size_t offset);

 private:
  using Chunk = CUmemGenericAllocationHandle;  // 0: not backed

  VirtualMemory(Gpu& gpu, std::size_t chunk_bytes, CUmemAllocationProp properties)
      : gpu_(&gpu), chunk_bytes_(chunk_bytes), properties_(properties) {}
  // Whether the driver gave the base. An error is one after which nothing works.
  Result<bool> reserve_base(CUdeviceptr wanted, std::size_t bytes);
  // Starts the bookkeeping of a range of reserved addresses.
  AddressRange take_range(CUdeviceptr base, std::size_t bytes);
  // The chunks of [offset, offset + bytes) of a range. CHECKs that they are its own.
  std::vector<Chunk>& chunks_of(AddressRange range, std::size_t offset, std::size_t bytes);
  Status back_chunk(CUdeviceptr address, Chunk& chunk, const Backing& backing);
  Status finish_backing(CUdeviceptr address, std::size_t bytes, const Backing& backing);
  void unback_chunk(CUdeviceptr address, Chunk& chunk);
  Status set_access(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags);
  // Whether the driver grants it. An error is one after which nothing works.
  Result<bool> set_read_only(CUdeviceptr address, std::size_t bytes);
  Error out_of_memory(std::size_t wanted) const;

  Gpu* gpu_;
  std::size_t chunk_bytes_;
  CUmemAllocationProp properties_;
  std::map<const std::byte*, std::vector<Chunk>> ranges_;
  bool logged_protection_ = false;
};

}  // namespace sluice::cuda
