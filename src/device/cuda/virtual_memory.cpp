#include "device/cuda/virtual_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice::cuda {
namespace {

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

CUdeviceptr address_of(const std::byte* pointer) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(pointer));
}

double gib(std::size_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

}  // namespace

Result<VirtualMemory> VirtualMemory::create(Gpu& gpu) {
  const DriverApi& api = gpu.api();
  int exportable = 0;
  RETURN_IF_ERROR(gpu.check(
      api.cuDeviceGetAttribute(&exportable,
                               CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                               gpu.device()),
      "whether its memory can be exported"));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = gpu.device();
  if (exportable != 0) {
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  } else {
    log_warning(gpu.name() + ": its memory cannot be shared with other processes here");
  }
  std::size_t granularity = 0;
  RETURN_IF_ERROR(gpu.check(api.cuMemGetAllocationGranularity(&granularity, &properties,
                                                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                            "the granularity of its memory"));
  if (granularity == 0) return internal_error(gpu.name() + ": a granularity of 0 bytes");
  return VirtualMemory(gpu, round_up(kChunkBytes, granularity), properties);
}

Result<AddressRange> VirtualMemory::reserve(std::size_t bytes) {
  if (bytes == 0) return invalid_argument("reserving device addresses: 0 bytes requested");
  RETURN_IF_ERROR(gpu_->make_current());
  bytes = round_up(bytes, chunk_bytes_);
  for (const std::size_t area : kAreas) {
    for (std::size_t slot = 0; slot < kSlotsOfArea; ++slot) {
      const CUdeviceptr wanted = area + slot * kSlotBytes;
      ASSIGN_OR_RETURN(const bool got, reserve_base(wanted, bytes));
      if (got) return take_range(wanted, bytes);
    }
  }
  const std::string what =
      fmt::format("{}: reserving {} bytes of device addresses: none of {} slots is free",
                  gpu_->name(), bytes, kSlotsOfArea * static_cast<int>(std::size(kAreas)));
  auto range = reserve_anywhere(bytes);
  if (!range) return unavailable(fmt::format("{}; {}", what, range.error().message));
  log_warning(fmt::format("{}; the driver chose {:#x}, which may differ in another process", what,
                          address_of(range->base)));
  return range;
}

Result<AddressRange> VirtualMemory::reserve_anywhere(std::size_t bytes) {
  RETURN_IF_ERROR(gpu_->make_current());
  bytes = round_up(bytes, chunk_bytes_);
  CUdeviceptr base = 0;
  RETURN_IF_ERROR(gpu_->check(gpu_->api().cuMemAddressReserve(&base, bytes, 0, 0, 0),
                              fmt::format("reserving {} bytes of device addresses", bytes)));
  return take_range(base, bytes);
}

Result<bool> VirtualMemory::reserve_base(CUdeviceptr wanted, std::size_t bytes) {
  const DriverApi& api = gpu_->api();
  CUdeviceptr got = 0;
  // The address is a hint: the driver may choose another one.
  const CUresult result = api.cuMemAddressReserve(&got, bytes, 0, wanted, 0);
  if (result == CUDA_SUCCESS && got == wanted) return true;
  if (result == CUDA_SUCCESS) {
    RETURN_IF_ERROR(gpu_->check(api.cuMemAddressFree(got, bytes), "freeing addresses"));
  } else if (is_sticky(result)) {
    return driver_error(api, result, "the driver");
  }
  return false;
}

Result<AddressRange> VirtualMemory::reserve_at(std::byte* base, std::size_t bytes) {
  const CUdeviceptr wanted = address_of(base);
  bytes = round_up(std::max<std::size_t>(bytes, 1), chunk_bytes_);
  RETURN_IF_ERROR(gpu_->make_current());
  bool got = false;
  if (wanted != 0 && wanted % chunk_bytes_ == 0) {
    ASSIGN_OR_RETURN(got, reserve_base(wanted, bytes));
  }
  if (got) return take_range(wanted, bytes);
  return unavailable(
      fmt::format("{}: {} bytes at the base {:#x} cannot be reserved: the driver "
                  "gives another range",
                  gpu_->name(), bytes, wanted));
}

AddressRange VirtualMemory::take_range(CUdeviceptr base, std::size_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers
  const AddressRange range{reinterpret_cast<std::byte*>(base), bytes};
  ranges_[range.base].resize(bytes / chunk_bytes_, Chunk{0});
  return range;
}

void VirtualMemory::release(AddressRange range) {
  const auto found = ranges_.find(range.base);
  CHECK(found != ranges_.end());
  CHECK(found->second.size() * chunk_bytes_ == range.bytes);
  for (const Chunk chunk : found->second) CHECK(chunk == 0);
  ranges_.erase(found);
  if (!gpu_->make_current()) return;
  static_cast<void>(gpu_->check(gpu_->api().cuMemAddressFree(address_of(range.base), range.bytes),
                                "freeing addresses"));
}

std::vector<VirtualMemory::Chunk>& VirtualMemory::chunks_of(AddressRange range, std::size_t offset,
                                                            std::size_t bytes) {
  const auto found = ranges_.find(range.base);
  CHECK(found != ranges_.end());
  CHECK(offset % chunk_bytes_ == 0 && bytes % chunk_bytes_ == 0 && bytes > 0);
  CHECK(offset <= range.bytes && bytes <= range.bytes - offset);
  CHECK(found->second.size() * chunk_bytes_ == range.bytes);
  return found->second;
}

Status VirtualMemory::back(AddressRange range, std::size_t offset, std::size_t bytes,
                           const Backing& backing) {
  if (backing.kind == Backing::Kind::kFile || backing.kind == Backing::Kind::kShared) {
    return unsupported(gpu_->name() + ": files and host memory cannot be mapped into its memory");
  }
  std::vector<Chunk>& chunks = chunks_of(range, offset, bytes);
  // A descriptor names one chunk.
  CHECK(backing.kind == Backing::Kind::kMemory || bytes == chunk_bytes_);
  RETURN_IF_ERROR(gpu_->health());
  RETURN_IF_ERROR(gpu_->make_current());
  const CUdeviceptr base = address_of(range.base);
  Status status;
  std::size_t done = offset;
  for (; done < offset + bytes; done += chunk_bytes_) {
    Chunk& chunk = chunks[done / chunk_bytes_];
    CHECK(chunk == 0);
    status = back_chunk(base + done, chunk, backing);
    if (!status) break;
  }
  if (status) status = finish_backing(base + offset, bytes, backing);
  if (status) return {};
  for (std::size_t at = offset; at < done; at += chunk_bytes_) {
    unback_chunk(base + at, chunks[at / chunk_bytes_]);
  }
  if (status.error().code == ErrorCode::kResourceExhausted) return out_of_memory(bytes);
  return status;
}

// Access to chunks that are mapped; memory of this process is zeroed.
Status VirtualMemory::finish_backing(CUdeviceptr address, std::size_t bytes,
                                     const Backing& backing) {
  bool granted = false;
  if (backing.protection == Protection::kReadOnly) {
    ASSIGN_OR_RETURN(granted, set_read_only(address, bytes));
  }
  if (!granted) {
    RETURN_IF_ERROR(set_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  }
  if (backing.kind != Backing::Kind::kMemory) return {};
  RETURN_IF_ERROR(gpu_->check(gpu_->api().cuMemsetD8Async(address, 0, bytes, gpu_->stream()),
                              "zeroing memory"));
  gpu_->order_transfers_after_compute();
  return gpu_->health();
}

Status VirtualMemory::back_chunk(CUdeviceptr address, Chunk& chunk, const Backing& backing) {
  const DriverApi& api = gpu_->api();
  Chunk made = 0;
  if (backing.kind == Backing::Kind::kImported) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes the number in a pointer's place
    auto* const descriptor = reinterpret_cast<void*>(static_cast<std::uintptr_t>(backing.fd));
    RETURN_IF_ERROR(gpu_->check(api.cuMemImportFromShareableHandle(
                                    &made, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                "importing another process's memory"));
  } else {
    RETURN_IF_ERROR(
        gpu_->check(api.cuMemCreate(&made, chunk_bytes_, &properties_, 0), "taking memory"));
  }
  if (auto status = gpu_->check(api.cuMemMap(address, chunk_bytes_, 0, made, 0), "mapping memory");
      !status) {
    static_cast<void>(gpu_->check(api.cuMemRelease(made), "giving memory back"));
    return status;
  }
  chunk = made;
  return {};
}

// A failure here is a fault of the device, which was reported already, or a bug of ours, which the
// log line names. In both cases the chunk counts as returned.
void VirtualMemory::unback_chunk(CUdeviceptr address, Chunk& chunk) {
  const DriverApi& api = gpu_->api();
  for (const auto& status : {gpu_->check(api.cuMemUnmap(address, chunk_bytes_), "unmapping memory"),
                             gpu_->check(api.cuMemRelease(chunk), "giving memory back")}) {
    if (!status && gpu_->health()) log_error(status.error().message);
  }
  chunk = 0;
}

void VirtualMemory::unback(AddressRange range, std::size_t offset, std::size_t bytes) {
  std::vector<Chunk>& chunks = chunks_of(range, offset, bytes);
  // Work that runs may use the memory. After a fault nothing runs, and the memory is still freed.
  gpu_->drain();
  for (std::size_t at = offset; at < offset + bytes; at += chunk_bytes_) {
    Chunk& chunk = chunks[at / chunk_bytes_];
    CHECK(chunk != 0);
    unback_chunk(address_of(range.base) + at, chunk);
  }
}

Result<FileDescriptor> VirtualMemory::export_memory(AddressRange range, std::size_t offset) {
  const Chunk chunk = chunks_of(range, offset, chunk_bytes_)[offset / chunk_bytes_];
  CHECK(chunk != 0);
  if (properties_.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    return unsupported(gpu_->name() + ": its memory cannot be shared with other processes here");
  }
  RETURN_IF_ERROR(gpu_->make_current());
  int fd = -1;
  RETURN_IF_ERROR(gpu_->check(gpu_->api().cuMemExportToShareableHandle(
                                  &fd, chunk, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                              "exporting memory"));
  return FileDescriptor(fd);
}

Status VirtualMemory::set_access(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location = properties_.location;
  access.flags = flags;
  return gpu_->check(gpu_->api().cuMemSetAccess(address, bytes, &access, 1),
                     "setting the access to memory");
}

Status VirtualMemory::protect(AddressRange range, std::size_t offset, std::size_t bytes,
                              Protection protection) {
  static_cast<void>(chunks_of(range, offset, bytes));  // checks the place
  // Copies in flight still write.
  RETURN_IF_ERROR(gpu_->synchronize());
  const CUdeviceptr address = address_of(range.base) + offset;
  if (protection == Protection::kReadWrite) {
    return set_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  ASSIGN_OR_RETURN(const bool granted, set_read_only(address, bytes));
  static_cast<void>(granted);
  return {};
}

// Protection only guards against our own bugs; results do not depend on it, so a refusal is a
// warning.
Result<bool> VirtualMemory::set_read_only(CUdeviceptr address, std::size_t bytes) {
  const auto status = set_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
  if (status) return true;
  if (status.error().code == ErrorCode::kUnavailable) return status.error();
  if (!logged_protection_) {
    log_warning(status.error().message + "; weights stay writable");
    logged_protection_ = true;
  }
  return false;
}

Error VirtualMemory::out_of_memory(std::size_t wanted) const {
  const auto info = gpu_->memory_info();
  if (!info) {
    return resource_exhausted(fmt::format(
        "{}: {:.2f} GiB of device memory requested, but not available", gpu_->name(), gib(wanted)));
  }
  const auto free_bytes = static_cast<std::size_t>(std::max<std::int64_t>(info->free_bytes, 0));
  const std::string missing = wanted > free_bytes
                                  ? fmt::format("{:.2f} GiB are missing", gib(wanted - free_bytes))
                                  : "free memory is in too small pieces";
  return resource_exhausted(fmt::format(
      "{}: {:.2f} GiB of device memory requested, {:.2f} GiB free of {:.2f} GiB: {}; lower "
      "--kv-cache-memory, --max-num-seqs or --max-model-len, or stop what else uses the GPU",
      gpu_->name(), gib(wanted), gib(free_bytes), gib(static_cast<std::size_t>(info->total_bytes)),
      missing));
}

}  // namespace sluice::cuda
