#include "device/cuda/cuda_chunks.h"

#include <fmt/format.h>

#include <mutex>
#include <set>
#include <utility>

#include "base/check.h"
#include "device/cuda/gpu.h"
#include "device/cuda/virtual_memory.h"

namespace sluice::cuda {
namespace {

class CudaChunks final : public DeviceChunks {
 public:
  CudaChunks(std::unique_ptr<Gpu> gpu, VirtualMemory memory, AddressRange range)
      : gpu_(std::move(gpu)), memory_(std::move(memory)), range_(range) {}
  ~CudaChunks() override;
  CudaChunks(const CudaChunks&) = delete;
  CudaChunks& operator=(const CudaChunks&) = delete;

  std::int64_t chunk_bytes() const override {
    return static_cast<std::int64_t>(memory_.chunk_bytes());
  }
  std::int64_t chunks() const override {
    return static_cast<std::int64_t>(range_.bytes / memory_.chunk_bytes());
  }
  Result<std::int64_t> free_bytes() const override;

  Result<FileDescriptor> make(std::int64_t chunk) override;
  Status import(std::int64_t chunk, int descriptor) override;
  void drop(std::int64_t chunk) override;

  Status write(std::uint64_t offset, std::span<const std::byte> source) override;
  Status read(std::uint64_t offset, std::span<std::byte> target) override;

 private:
  std::size_t offset_of(std::int64_t chunk) const {
    return static_cast<std::size_t>(chunk) * memory_.chunk_bytes();
  }
  Status back(std::int64_t chunk, const Backing& backing);
  void unback(std::int64_t chunk);
  CUdeviceptr address(std::uint64_t offset, std::size_t bytes) const;

  std::unique_ptr<Gpu> gpu_;
  mutable std::mutex mutex_;  // guards all below, and what is submitted to the GPU
  VirtualMemory memory_;
  const AddressRange range_;
  std::set<std::int64_t> held_;
};

CudaChunks::~CudaChunks() {
  while (!held_.empty()) unback(*held_.begin());
  memory_.release(range_);
}

Result<std::int64_t> CudaChunks::free_bytes() const {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const MemoryInfo info, gpu_->memory_info());
  return info.free_bytes;
}

Status CudaChunks::back(std::int64_t chunk, const Backing& backing) {
  RETURN_IF_ERROR(memory_.back(range_, offset_of(chunk), memory_.chunk_bytes(), backing));
  held_.insert(chunk);
  return {};
}

void CudaChunks::unback(std::int64_t chunk) {
  memory_.unback(range_, offset_of(chunk), memory_.chunk_bytes());
  held_.erase(chunk);
}

Result<FileDescriptor> CudaChunks::make(std::int64_t chunk) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(back(chunk, Backing::memory()));
  // Another process's copies know nothing of this one's streams: the zeros must be there first.
  if (Status zeroed = gpu_->synchronize(); !zeroed) {
    unback(chunk);
    return std::move(zeroed).error();
  }
  auto descriptor = memory_.export_memory(range_, offset_of(chunk));
  if (!descriptor) unback(chunk);
  return descriptor;
}

Status CudaChunks::import(std::int64_t chunk, int descriptor) {
  const std::lock_guard lock(mutex_);
  return back(chunk, Backing::imported(descriptor, Protection::kReadWrite));
}

void CudaChunks::drop(std::int64_t chunk) {
  const std::lock_guard lock(mutex_);
  unback(chunk);
}

CUdeviceptr CudaChunks::address(std::uint64_t offset, std::size_t bytes) const {
  CHECK(offset <= range_.bytes && bytes <= range_.bytes - offset);
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(range_.base)) + offset;
}

Status CudaChunks::write(std::uint64_t offset, std::span<const std::byte> source) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(gpu_->make_current());
  gpu_->submitted(gpu_->api().cuMemcpyHtoDAsync(address(offset, source.size()), source.data(),
                                                source.size(), gpu_->stream(Queue::kTransfer)),
                  "copy to lent memory");
  return gpu_->synchronize(Queue::kTransfer);
}

Status CudaChunks::read(std::uint64_t offset, std::span<std::byte> target) {
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(gpu_->make_current());
  gpu_->submitted(gpu_->api().cuMemcpyDtoHAsync(target.data(), address(offset, target.size()),
                                                target.size(), gpu_->stream(Queue::kTransfer)),
                  "copy from lent memory");
  return gpu_->synchronize(Queue::kTransfer);
}

}  // namespace

Result<std::unique_ptr<DeviceChunks>> make_chunks(const DriverApi& api, int index,
                                                  std::int64_t bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::open(api, index));
  ASSIGN_OR_RETURN(VirtualMemory memory, VirtualMemory::create(*gpu));
  const std::size_t chunks = static_cast<std::size_t>(bytes) / memory.chunk_bytes();
  if (chunks == 0) {
    return invalid_argument(fmt::format("{}: {} bytes are less than a chunk of {}", gpu->name(),
                                        bytes, memory.chunk_bytes()));
  }
  // No graph has addresses of these chunks, so the fixed bases are left to the arena.
  ASSIGN_OR_RETURN(const AddressRange range,
                   memory.reserve_anywhere(chunks * memory.chunk_bytes()));
  return std::unique_ptr<DeviceChunks>(
      std::make_unique<CudaChunks>(std::move(gpu), std::move(memory), range));
}

}  // namespace sluice::cuda
