// The fake driver's memory: device addresses are pages of this process, reserved, mapped and given
// access to as the real driver has it. An allocation is a memfd, and so is an exported descriptor:
// its importer, also in another process, gets the same bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "tests/support/cuda/fake_calls.h"

// Device addresses are numbers; here they are places of this process as well.
// NOLINTBEGIN(performance-no-int-to-ptr)

namespace sluice::cuda {
namespace {

using namespace fakes;  // NOLINT(google-build-using-namespace): these are its words

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
  ENTER(cuMemGetAllocationGranularity);
  *bytes = fake().granularity;
  return CUDA_SUCCESS;
}

// A hint, as with the real one: a base that is taken gives another address, and so does 0.
CUresult address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr wanted,
                         unsigned long long) {
  ENTER_CURRENT(cuMemAddressReserve);
  if (bytes % fake().granularity != 0) return broken("reserve: not a multiple");
  const auto& taken = fake().taken;
  const bool is_taken = wanted == 0 || std::find(taken.begin(), taken.end(), wanted) != taken.end();
  void* const hint = is_taken ? nullptr : reinterpret_cast<void*>(wanted);
  void* got = mmap(
      hint, bytes, PROT_NONE,
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (is_taken ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
  if (got == MAP_FAILED) {
    got = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<CUdeviceptr>(got);
  fake().reserved[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr address, std::size_t bytes) {
  ENTER_CURRENT(cuMemAddressFree);
  const auto found = fake().reserved.find(address);
  if (found == fake().reserved.end() || found->second != bytes)
    return broken("free: no such range");
  for (const auto& [at, mapping] : fake().mapped) {
    if (at >= address && at < address + bytes) return broken("free: still mapped");
  }
  fake().reserved.erase(found);
  munmap(reinterpret_cast<void*>(address), bytes);
  return CUDA_SUCCESS;
}

constexpr const char* kMemoryName = "fake GPU memory";

// Handles of one physical memory take its bytes once.
bool has_other_handle(std::size_t inode, CUmemGenericAllocationHandle handle) {
  const auto& all = fake().allocations;
  return std::any_of(all.begin(), all.end(), [&](const auto& entry) {
    return entry.first != handle && entry.second.inode == inode;
  });
}

CUresult add_allocation(CUmemGenericAllocationHandle* handle, FileDescriptor memory) {
  struct stat facts{};
  CHECK(fstat(memory.get(), &facts) == 0);
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  const bool is_new = !has_other_handle(facts.st_ino, 0);
  if (is_new && bytes > fake().free_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  if (is_new) fake().free_memory -= bytes;
  *handle = next_handle();
  fake().allocations[*handle] = {bytes, facts.st_ino, std::move(memory)};
  return CUDA_SUCCESS;
}

CUresult memory_create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                       const CUmemAllocationProp* properties, unsigned long long) {
  ENTER_CURRENT(cuMemCreate);
  if (bytes == 0 || bytes % fake().granularity != 0) return broken("create: not a multiple");
  if (bytes > fake().free_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  FileDescriptor memory = make_exported_memory(bytes);
  fake().last_properties = *properties;
  return add_allocation(handle, std::move(memory));
}

// Memory that only descriptors hold lives on, but does not count as taken.
CUresult memory_release(CUmemGenericAllocationHandle handle) {
  ENTER_CURRENT(cuMemRelease);
  const auto found = fake().allocations.find(handle);
  if (found == fake().allocations.end()) return broken("release: no such allocation");
  for (const auto& [at, mapping] : fake().mapped) {
    if (mapping.handle == handle) return broken("release: still mapped");
  }
  if (!has_other_handle(found->second.inode, handle)) fake().free_memory += found->second.bytes;
  fake().allocations.erase(found);
  return CUDA_SUCCESS;
}

CUresult memory_map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long) {
  ENTER_CURRENT(cuMemMap);
  const auto allocation = fake().allocations.find(handle);
  if (offset != 0 || allocation == fake().allocations.end()) return broken("map: no allocation");
  const FakeDriver::Allocation& memory = allocation->second;
  if (!memory.imported && memory.bytes != bytes) return broken("map: not a whole allocation");
  if (memory.bytes < bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto range = fake().reserved.upper_bound(address);
  if (range == fake().reserved.begin()) return broken("map: not reserved");
  const auto& [base, size] = *std::prev(range);
  if (address + bytes > base + size) return broken("map: not reserved");
  for (const auto& [at, mapping] : fake().mapped) {
    if (at < address + bytes && address < at + mapping.bytes) return broken("map: mapped already");
  }
  fake().mapped[address] = {bytes, handle, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return CUDA_SUCCESS;
}

CUresult memory_unmap(CUdeviceptr address, std::size_t bytes) {
  ENTER_CURRENT(cuMemUnmap);
  const auto found = fake().mapped.find(address);
  if (found == fake().mapped.end() || found->second.bytes != bytes) {
    return broken("unmap: not a whole mapping");
  }
  if (fake().outstanding() > 0) return broken("unmap: something submitted has not run");
  fake().mapped.erase(found);
  auto* const place = reinterpret_cast<void*>(address);
  CHECK(mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == place);
  return CUDA_SUCCESS;
}

CUresult memory_export(void* handle, CUmemGenericAllocationHandle memory,
                       CUmemAllocationHandleType type, unsigned long long) {
  ENTER_CURRENT(cuMemExportToShareableHandle);
  const auto found = fake().allocations.find(memory);
  if (found == fake().allocations.end()) return broken("export: no such allocation");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      fake().last_properties.requestedHandleTypes != type) {
    return broken("export: not made to be exported");
  }
  const int fd = fcntl(found->second.memory.get(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(handle) = fd;
  return CUDA_SUCCESS;
}

// Whether a descriptor is memory of a fake driver, of this process or of another.
bool is_fake_memory(int fd) {
  char name[64] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), name, sizeof name - 1);
  return length > 0 && std::string_view(name).find(kMemoryName) != std::string_view::npos;
}

CUresult memory_import(CUmemGenericAllocationHandle* handle, void* descriptor,
                       CUmemAllocationHandleType type) {
  ENTER_CURRENT(cuMemImportFromShareableHandle);
  const int fd = static_cast<int>(number_of(descriptor));
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !is_fake_memory(fd)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  FileDescriptor memory(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!memory.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  const CUresult added = add_allocation(handle, std::move(memory));
  if (added == CUDA_SUCCESS) fake().allocations[*handle].imported = true;
  return added;
}

// Whether every byte of a range is mapped, with access where it is wanted.
bool is_mapped(CUdeviceptr address, std::size_t bytes,
               CUmemAccess_flags access = CU_MEM_ACCESS_FLAGS_PROT_NONE) {
  for (std::size_t done = 0; done < bytes;) {
    auto found = fake().mapped.upper_bound(address + done);
    if (found == fake().mapped.begin()) return false;
    const auto& [at, mapping] = *std::prev(found);
    if (address + done >= at + mapping.bytes) return false;
    if ((mapping.access & access) != access) return false;
    done = at + mapping.bytes - address;
  }
  return true;
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                    std::size_t count) {
  ENTER_CURRENT(cuMemSetAccess);
  if (fake().refuses_read_only && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (count != 1 || !is_mapped(address, bytes)) return broken("access: not mapped");
  for (auto& [at, mapping] : fake().mapped) {
    if (at < address || at >= address + bytes) continue;
    mapping.access = access->flags;
    const int protection = (access->flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : 0) |
                           (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0);
    auto* const place = reinterpret_cast<void*>(at);
    CHECK(mmap(place, mapping.bytes, protection, MAP_SHARED | MAP_FIXED,
               fake().allocations.at(mapping.handle).memory.get(), 0) == place);
  }
  return CUDA_SUCCESS;
}

// ---- pinned memory and copies

CUresult host_alloc(void** memory, std::size_t bytes, unsigned) {
  ENTER_CURRENT(cuMemHostAlloc);
  *memory = std::malloc(bytes);
  ++fake().pinned;
  return CUDA_SUCCESS;
}

CUresult host_free(void* memory) {
  ENTER_CURRENT(cuMemFreeHost);
  if (fake().outstanding() > 0) return broken("free of pinned memory: something has not run");
  std::free(memory);
  --fake().pinned;
  return CUDA_SUCCESS;
}

constexpr CUmemAccess_flags kRead = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr CUmemAccess_flags kWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

CUresult may_copy(CUdeviceptr address, std::size_t bytes, CUmemAccess_flags access) {
  if (fake().capturing) return broken("copy: while capturing");
  if (!is_mapped(address, bytes, access)) return broken("copy: no access");
  return CUDA_SUCCESS;
}

// Copies of any host memory run as late as allowed: a GPU that reads pageable memory may do so.
CUresult copy_to_device(CUdeviceptr target, const void* source, std::size_t bytes,
                        CUstream stream) {
  ENTER_CURRENT(cuMemcpyHtoDAsync);
  if (const CUresult result = may_copy(target, bytes, kWrite); result != CUDA_SUCCESS)
    return result;
  fake().submit(stream, [=] { std::memcpy(reinterpret_cast<void*>(target), source, bytes); });
  return CUDA_SUCCESS;
}

CUresult copy_to_host(void* target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
  ENTER_CURRENT(cuMemcpyDtoHAsync);
  if (const CUresult result = may_copy(source, bytes, kRead); result != CUDA_SUCCESS) return result;
  fake().submit(stream, [=] { std::memcpy(target, reinterpret_cast<const void*>(source), bytes); });
  return CUDA_SUCCESS;
}

CUresult copy_on_device(CUdeviceptr target, CUdeviceptr source, std::size_t bytes,
                        CUstream stream) {
  ENTER_CURRENT(cuMemcpyDtoDAsync);
  if (const CUresult result = may_copy(target, bytes, kWrite); result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = may_copy(source, bytes, kRead); result != CUDA_SUCCESS) return result;
  fake().submit(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes);
  });
  return CUDA_SUCCESS;
}

// Small pieces only: fresh pages are zero anyway, and tests should not touch gigabytes.
CUresult set_memory(CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream stream) {
  ENTER_CURRENT(cuMemsetD8Async);
  if (const CUresult result = may_copy(address, bytes, kWrite); result != CUDA_SUCCESS) {
    return result;
  }
  if (value == 0) return CUDA_SUCCESS;
  fake().submit(stream, [=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
  return CUDA_SUCCESS;
}

}  // namespace

FileDescriptor make_exported_memory(std::size_t bytes) {
  FileDescriptor memory(memfd_create(kMemoryName, MFD_CLOEXEC));
  CHECK(memory.valid() && ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  return memory;
}

void fakes::fill_memory_functions(DriverApi& api) {
  api.cuMemGetAllocationGranularity = granularity;
  api.cuMemAddressReserve = address_reserve;
  api.cuMemAddressFree = address_free;
  api.cuMemCreate = memory_create;
  api.cuMemRelease = memory_release;
  api.cuMemMap = memory_map;
  api.cuMemUnmap = memory_unmap;
  api.cuMemSetAccess = set_access;
  api.cuMemExportToShareableHandle = memory_export;
  api.cuMemImportFromShareableHandle = memory_import;
  api.cuMemHostAlloc = host_alloc;
  api.cuMemFreeHost = host_free;
  api.cuMemcpyHtoDAsync = copy_to_device;
  api.cuMemcpyDtoHAsync = copy_to_host;
  api.cuMemcpyDtoDAsync = copy_on_device;
  api.cuMemsetD8Async = set_memory;
}

}  // namespace sluice::cuda
// NOLINTEND(performance-no-int-to-ptr)
