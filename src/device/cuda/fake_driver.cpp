#include "device/cuda/fake_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "device/cuda/run_emulated.h"

// Device addresses and handles are numbers; here they are places of this process as well.
// NOLINTBEGIN(performance-no-int-to-ptr)

namespace sluice::cuda {
namespace {

FakeDriver* active = nullptr;

FakeDriver& fake() {
  CHECK(active != nullptr);
  return *active;
}

// Counts the call and decides whether it fails as a test wants.
CUresult enter(const char* function) {
  ++fake().calls[function];
  const auto found = fake().fails.find(function);
  if (found == fake().fails.end()) return CUDA_SUCCESS;
  if (const auto left = fake().works.find(function);
      left != fake().works.end() && left->second > 0) {
    --left->second;
    return CUDA_SUCCESS;
  }
  return found->second;
}

CUresult broken(const std::string& rule) {
  fake().broken_rules.push_back(rule);
  return CUDA_ERROR_INVALID_VALUE;
}

// The name in the first step, before a version is added to it.
#define ENTER(function)                                                                   \
  if (const CUresult result_ = enter(#function); result_ != CUDA_SUCCESS) return result_; \
  static_cast<void>(0)
#define ENTER_CURRENT(function)                                                           \
  if (const CUresult result_ = enter(#function); result_ != CUDA_SUCCESS) return result_; \
  if (!fake().current) return CUDA_ERROR_INVALID_CONTEXT;                                 \
  if (fake().fault != CUDA_SUCCESS) return fake().fault

template <class Handle>
Handle handle_of(std::size_t number) {
  return reinterpret_cast<Handle>(number);
}

template <class Handle>
std::size_t number_of(Handle handle) {
  return reinterpret_cast<std::size_t>(handle);
}

std::size_t next_handle() {
  static std::size_t next = 100;
  return next++;
}

// ---- errors, devices, context

CUresult error_name(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED: *text = "CUDA_ERROR_NOT_SUPPORTED"; return CUDA_SUCCESS;
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult error_string(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : nullptr;
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult init(unsigned) {
  ENTER(cuInit);
  return CUDA_SUCCESS;
}

CUresult get_driver_version(int* version) {
  ENTER(cuDriverGetVersion);
  *version = fake().driver_version;
  return CUDA_SUCCESS;
}

CUresult device_count(int* count) {
  ENTER(cuDeviceGetCount);
  *count = fake().devices;
  return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* device, int ordinal) {
  ENTER(cuDeviceGet);
  if (ordinal < 0 || ordinal >= fake().devices) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult device_name(char* name, int bytes, CUdevice) {
  ENTER(cuDeviceGetName);
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(bytes));
  return CUDA_SUCCESS;
}

CUresult device_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  ENTER(cuDeviceGetAttribute);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = fake().virtual_memory;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = fake().exportable;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult device_memory(std::size_t* bytes, CUdevice) {
  ENTER(cuDeviceTotalMem);
  *bytes = std::size_t{8} << 30;
  return CUDA_SUCCESS;
}

CUresult retain_context(CUcontext* context, CUdevice) {
  ENTER(cuDevicePrimaryCtxRetain);
  ++fake().contexts;
  *context = handle_of<CUcontext>(1);
  return CUDA_SUCCESS;
}

CUresult release_context(CUdevice) {
  ENTER(cuDevicePrimaryCtxRelease);
  --fake().contexts;
  return CUDA_SUCCESS;
}

CUresult set_current(CUcontext context) {
  ENTER(cuCtxSetCurrent);
  fake().current = context != nullptr;
  return CUDA_SUCCESS;
}

CUresult memory_info(std::size_t* free_bytes, std::size_t* total) {
  ENTER_CURRENT(cuMemGetInfo);
  *free_bytes = fake().free_memory;
  *total = std::size_t{8} << 30;
  return CUDA_SUCCESS;
}

// ---- virtual memory

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*,
                     CUmemAllocationGranularity_flags) {
  ENTER(cuMemGetAllocationGranularity);
  *bytes = fake().granularity;
  return CUDA_SUCCESS;
}

// A hint, as with the real one: a base that is taken gives another address.
CUresult address_reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr wanted,
                         unsigned long long) {
  ENTER_CURRENT(cuMemAddressReserve);
  if (bytes % fake().granularity != 0) return broken("reserve: not a multiple");
  const auto& taken = fake().taken;
  const bool is_taken = std::find(taken.begin(), taken.end(), wanted) != taken.end();
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

CUresult memory_create(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                       const CUmemAllocationProp* properties, unsigned long long) {
  ENTER_CURRENT(cuMemCreate);
  if (bytes == 0 || bytes % fake().granularity != 0) return broken("create: not a multiple");
  if (bytes > fake().free_memory) return CUDA_ERROR_OUT_OF_MEMORY;
  fake().free_memory -= bytes;
  fake().last_properties = *properties;
  *handle = next_handle();
  fake().allocations[*handle] = bytes;
  return CUDA_SUCCESS;
}

CUresult memory_release(CUmemGenericAllocationHandle handle) {
  ENTER_CURRENT(cuMemRelease);
  const auto found = fake().allocations.find(handle);
  if (found == fake().allocations.end()) return broken("release: no such allocation");
  for (const auto& [at, mapping] : fake().mapped) {
    if (mapping.handle == handle) return broken("release: still mapped");
  }
  fake().free_memory += found->second;
  fake().allocations.erase(found);
  return CUDA_SUCCESS;
}

CUresult memory_map(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long) {
  ENTER_CURRENT(cuMemMap);
  const auto allocation = fake().allocations.find(handle);
  if (offset != 0 || allocation == fake().allocations.end() || allocation->second != bytes) {
    return broken("map: not a whole allocation");
  }
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
  fake().mapped.erase(found);
  auto* const place = reinterpret_cast<void*>(address);
  CHECK(mmap(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == place);
  return CUDA_SUCCESS;
}

// Whether every byte of a range is mapped, with access where it is wanted.
bool is_mapped(CUdeviceptr address, std::size_t bytes, bool with_access) {
  for (std::size_t done = 0; done < bytes;) {
    auto found = fake().mapped.upper_bound(address + done);
    if (found == fake().mapped.begin()) return false;
    const auto& [at, mapping] = *std::prev(found);
    if (address + done >= at + mapping.bytes) return false;
    if (with_access && mapping.access == CU_MEM_ACCESS_FLAGS_PROT_NONE) return false;
    done = at + mapping.bytes - address;
  }
  return true;
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                    std::size_t count) {
  ENTER_CURRENT(cuMemSetAccess);
  if (count != 1 || !is_mapped(address, bytes, false)) return broken("access: not mapped");
  for (auto& [at, mapping] : fake().mapped) {
    if (at < address || at >= address + bytes) continue;
    mapping.access = access->flags;
  }
  mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}

// ---- copies, streams, events: everything happens when it is called

CUresult host_alloc(void** memory, std::size_t bytes, unsigned) {
  ENTER_CURRENT(cuMemHostAlloc);
  *memory = std::malloc(bytes);
  ++fake().pinned;
  return CUDA_SUCCESS;
}

CUresult host_free(void* memory) {
  ENTER_CURRENT(cuMemFreeHost);
  std::free(memory);
  --fake().pinned;
  return CUDA_SUCCESS;
}

CUresult may_copy(CUdeviceptr address, std::size_t bytes) {
  if (fake().capturing) return broken("copy: while capturing");
  if (!is_mapped(address, bytes, true)) return broken("copy: not mapped");
  return CUDA_SUCCESS;
}

CUresult copy_to_device(CUdeviceptr target, const void* source, std::size_t bytes, CUstream) {
  ENTER_CURRENT(cuMemcpyHtoDAsync);
  if (const CUresult result = may_copy(target, bytes); result != CUDA_SUCCESS) return result;
  std::memcpy(reinterpret_cast<void*>(target), source, bytes);
  return CUDA_SUCCESS;
}

CUresult copy_to_host(void* target, CUdeviceptr source, std::size_t bytes, CUstream) {
  ENTER_CURRENT(cuMemcpyDtoHAsync);
  if (const CUresult result = may_copy(source, bytes); result != CUDA_SUCCESS) return result;
  std::memcpy(target, reinterpret_cast<const void*>(source), bytes);
  return CUDA_SUCCESS;
}

// Small pieces only: fresh pages are zero anyway, and tests should not touch gigabytes.
CUresult set_memory(CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream) {
  ENTER_CURRENT(cuMemsetD8Async);
  if (const CUresult result = may_copy(address, bytes); result != CUDA_SUCCESS) return result;
  if (value != 0) std::memset(reinterpret_cast<void*>(address), value, bytes);
  return CUDA_SUCCESS;
}

CUresult stream_create(CUstream* stream, unsigned) {
  ENTER_CURRENT(cuStreamCreate);
  ++fake().streams;
  *stream = handle_of<CUstream>(7);
  return CUDA_SUCCESS;
}

CUresult stream_destroy(CUstream) {
  ENTER_CURRENT(cuStreamDestroy);
  --fake().streams;
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream) {
  ENTER_CURRENT(cuStreamSynchronize);
  return fake().capturing ? broken("synchronize: while capturing") : CUDA_SUCCESS;
}

CUresult begin_capture(CUstream, CUstreamCaptureMode) {
  ENTER_CURRENT(cuStreamBeginCapture);
  if (fake().capturing) return broken("capture: nested");
  fake().capturing = true;
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream, CUgraph* graph) {
  if (!fake().capturing) return broken("capture: none");
  fake().capturing = false;
  ENTER_CURRENT(cuStreamEndCapture);
  const std::size_t number = next_handle();
  fake().graphs[number] = std::move(fake().captured);
  fake().captured.clear();
  *graph = handle_of<CUgraph>(number);
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* event, unsigned) {
  ENTER_CURRENT(cuEventCreate);
  ++fake().events;
  *event = handle_of<CUevent>(static_cast<std::size_t>(fake().events));
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent) {
  ENTER_CURRENT(cuEventDestroy);
  --fake().events;
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent, CUstream) {
  ENTER_CURRENT(cuEventRecord);
  return CUDA_SUCCESS;
}

CUresult event_synchronize(CUevent) {
  ENTER_CURRENT(cuEventSynchronize);
  return CUDA_SUCCESS;
}

// ---- code and launches

// A module is the image's address, a function the index of its kernel plus one.
CUresult module_load(CUmodule* module, const void* image) {
  ENTER_CURRENT(cuModuleLoadData);
  ++fake().modules;
  *module = static_cast<CUmodule>(const_cast<void*>(image));
  return CUDA_SUCCESS;
}

CUresult module_unload(CUmodule) {
  ENTER_CURRENT(cuModuleUnload);
  --fake().modules;
  return CUDA_SUCCESS;
}

CUresult module_function(CUfunction* function, CUmodule module, const char* name) {
  ENTER_CURRENT(cuModuleGetFunction);
  for (std::size_t i = 0; i < kNumKernels; ++i) {
    const KernelInfo& info = kernel_info(static_cast<KernelId>(i));
    if (std::strcmp(info.symbol, name) != 0) continue;
    if (static_cast<const void*>(module) != device_codes()[info.code].bytes.data()) break;
    *function = handle_of<CUfunction>(i + 1);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

KernelId kernel_of(CUfunction function) { return static_cast<KernelId>(number_of(function) - 1); }

CUresult function_load(CUfunction) {
  ENTER_CURRENT(cuFuncLoad);
  return CUDA_SUCCESS;
}

CUresult function_parameter(CUfunction function, std::size_t index, std::size_t* offset,
                            std::size_t* bytes) {
  ENTER_CURRENT(cuFuncGetParamInfo);
  if (index != 0) return CUDA_ERROR_INVALID_VALUE;
  const KernelInfo& info = kernel_info(kernel_of(function));
  const auto own = fake().parameter_bytes.find(info.symbol);
  *offset = 0;
  *bytes = own == fake().parameter_bytes.end() ? info.parameter_bytes : own->second;
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned, CUstream,
                void** parameters, void** extra) {
  ENTER_CURRENT(cuLaunchKernel);
  if (grid_x == 0 || grid_y == 0 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
      block_z != 1 || parameters == nullptr || extra != nullptr) {
    return broken("launch: shape");
  }
  FakeDriver::Launch noted{kernel_of(function), {grid_x, grid_y, block_x, 0}, {}};
  noted.params.resize(kernel_info(noted.kernel).parameter_bytes);
  std::memcpy(noted.params.data(), parameters[0], noted.params.size());
  if (fake().capturing) {
    fake().captured.push_back(std::move(noted));
    return CUDA_SUCCESS;
  }
  fake().run(noted);
  fake().launches.push_back(std::move(noted));
  return CUDA_SUCCESS;
}

// ---- graphs

CUresult graph_instantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  ENTER_CURRENT(cuGraphInstantiate);
  const auto found = fake().graphs.find(number_of(graph));
  if (found == fake().graphs.end()) return broken("instantiate: no such graph");
  const std::size_t number = next_handle();
  fake().executables[number] = found->second;
  *executable = handle_of<CUgraphExec>(number);
  return CUDA_SUCCESS;
}

CUresult graph_upload(CUgraphExec, CUstream) {
  ENTER_CURRENT(cuGraphUpload);
  return CUDA_SUCCESS;
}

CUresult graph_launch(CUgraphExec executable, CUstream) {
  ENTER_CURRENT(cuGraphLaunch);
  const auto found = fake().executables.find(number_of(executable));
  if (found == fake().executables.end()) return broken("launch: no such graph");
  for (const FakeDriver::Launch& launch : found->second) fake().run(launch);
  return CUDA_SUCCESS;
}

CUresult executable_destroy(CUgraphExec executable) {
  ENTER_CURRENT(cuGraphExecDestroy);
  return fake().executables.erase(number_of(executable)) == 1 ? CUDA_SUCCESS
                                                              : broken("destroy: no such graph");
}

CUresult graph_destroy(CUgraph graph) {
  ENTER_CURRENT(cuGraphDestroy);
  return fake().graphs.erase(number_of(graph)) == 1 ? CUDA_SUCCESS
                                                    : broken("destroy: no such graph");
}

void fill_memory_functions(DriverApi& api) {
  api.cuMemGetInfo = memory_info;
  api.cuMemGetAllocationGranularity = granularity;
  api.cuMemAddressReserve = address_reserve;
  api.cuMemAddressFree = address_free;
  api.cuMemCreate = memory_create;
  api.cuMemRelease = memory_release;
  api.cuMemMap = memory_map;
  api.cuMemUnmap = memory_unmap;
  api.cuMemSetAccess = set_access;
  api.cuMemHostAlloc = host_alloc;
  api.cuMemFreeHost = host_free;
  api.cuMemcpyHtoDAsync = copy_to_device;
  api.cuMemcpyDtoHAsync = copy_to_host;
  api.cuMemsetD8Async = set_memory;
}

void fill_stream_functions(DriverApi& api) {
  api.cuStreamCreate = stream_create;
  api.cuStreamDestroy = stream_destroy;
  api.cuStreamSynchronize = stream_synchronize;
  api.cuStreamBeginCapture = begin_capture;
  api.cuStreamEndCapture = end_capture;
  api.cuEventCreate = event_create;
  api.cuEventDestroy = event_destroy;
  api.cuEventRecord = event_record;
  api.cuEventSynchronize = event_synchronize;
  api.cuModuleLoadData = module_load;
  api.cuModuleUnload = module_unload;
  api.cuModuleGetFunction = module_function;
  api.cuFuncLoad = function_load;
  api.cuFuncGetParamInfo = function_parameter;
  api.cuLaunchKernel = launch;
  api.cuGraphInstantiate = graph_instantiate;
  api.cuGraphUpload = graph_upload;
  api.cuGraphLaunch = graph_launch;
  api.cuGraphExecDestroy = executable_destroy;
  api.cuGraphDestroy = graph_destroy;
}

}  // namespace

FakeDriver::FakeDriver() {
  CHECK(active == nullptr);
  active = this;
}

FakeDriver::~FakeDriver() {
  for (const auto& [address, bytes] : reserved) munmap(reinterpret_cast<void*>(address), bytes);
  active = nullptr;
}

DriverApi FakeDriver::api() {
  DriverApi api;
  api.cuInit = init;
  api.cuDriverGetVersion = get_driver_version;
  api.cuGetErrorName = error_name;
  api.cuGetErrorString = error_string;
  api.cuDeviceGetCount = device_count;
  api.cuDeviceGet = device_get;
  api.cuDeviceGetName = device_name;
  api.cuDeviceGetAttribute = device_attribute;
  api.cuDeviceTotalMem = device_memory;
  api.cuDevicePrimaryCtxRetain = retain_context;
  api.cuDevicePrimaryCtxRelease = release_context;
  api.cuCtxSetCurrent = set_current;
  fill_memory_functions(api);
  fill_stream_functions(api);
  return api;
}

void FakeDriver::run(const Launch& launch) {
  if (!runs_kernels || fault != CUDA_SUCCESS) return;
  if (!run_emulated(launch.kernel, launch.shape, launch.params.data())) {
    fault = CUDA_ERROR_LAUNCH_FAILED;
  }
}

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

void* FakeDriver::lookup(void*, const char* symbol) {
  if (fake().missing == symbol) return nullptr;
  static DriverApi table = api();
  void* found = nullptr;
#define MATCH(name)                              \
  if (std::strcmp(symbol, TEXT(name)) == 0) {    \
    CHECK(table.name != nullptr);                \
    found = reinterpret_cast<void*>(table.name); \
  }
  SLUICE_CUDA_FUNCTIONS(MATCH)
#undef MATCH
  return found;
}

}  // namespace sluice::cuda
// NOLINTEND(performance-no-int-to-ptr)
