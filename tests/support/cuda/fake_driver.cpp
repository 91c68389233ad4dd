#include "tests/support/cuda/fake_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "tests/support/cuda/fake_calls.h"
#include "tests/support/cuda/run_emulated.h"

// Device addresses and handles are numbers; here they are places of this process as well.
// NOLINTBEGIN(performance-no-int-to-ptr)

namespace sluice::cuda {
namespace {

FakeDriver* active = nullptr;

std::size_t next_number = 100;

}  // namespace

namespace fakes {

FakeDriver& fake() {
  CHECK(active != nullptr);
  return *active;
}

CUresult enter(const char* function) {
  ++fake().calls[function];
  if (fake().capturing) {
    const auto breaks = fake().fails_in_capture.find(function);
    if (breaks != fake().fails_in_capture.end()) {
      fake().capture_broken = true;
      return breaks->second;
    }
    if (fake().capture_broken && std::strcmp(function, "cuStreamEndCapture") != 0) {
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
  }
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

std::size_t next_handle() { return next_number++; }

}  // namespace fakes

namespace {

using namespace fakes;  // NOLINT(google-build-using-namespace): these are its words

// ---- errors, devices, context

CUresult error_name(CUresult error, const char** text) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; return CUDA_SUCCESS;
    case CUDA_ERROR_ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; return CUDA_SUCCESS;
    case CUDA_ERROR_LAUNCH_FAILED: *text = "CUDA_ERROR_LAUNCH_FAILED"; return CUDA_SUCCESS;
    case CUDA_ERROR_NO_DEVICE: *text = "CUDA_ERROR_NO_DEVICE"; return CUDA_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; return CUDA_SUCCESS;
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
      return CUDA_SUCCESS;
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
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = fake().capability;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = fake().multiprocessors;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = fake().shared_bytes_optin;
      return CUDA_SUCCESS;
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

// ---- streams and events

CUresult stream_create(CUstream* stream, unsigned) {
  ENTER_CURRENT(cuStreamCreate);
  ++fake().streams;
  *stream = handle_of<CUstream>(next_handle());
  return CUDA_SUCCESS;
}

CUresult stream_destroy(CUstream) {
  ENTER_CURRENT(cuStreamDestroy);
  --fake().streams;
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream stream) {
  ENTER_CURRENT(cuStreamSynchronize);
  if (fake().capturing) return broken("synchronize: while capturing");
  fake().catch_up(stream);
  return fake().fault;
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
  const std::vector<FakeDriver::Launch> captured = std::exchange(fake().captured, {});
  if (std::exchange(fake().capture_broken, false)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  ENTER_CURRENT(cuStreamEndCapture);
  const std::size_t number = next_handle();
  fake().graphs[number] = captured;
  *graph = handle_of<CUgraph>(number);
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent* event, unsigned) {
  ENTER_CURRENT(cuEventCreate);
  ++fake().events;
  *event = handle_of<CUevent>(next_handle());
  return CUDA_SUCCESS;
}

CUresult event_destroy(CUevent) {
  ENTER_CURRENT(cuEventDestroy);
  --fake().events;
  return CUDA_SUCCESS;
}

CUresult stream_wait_event(CUstream stream, CUevent event, unsigned) {
  ENTER_CURRENT(cuStreamWaitEvent);
  if (fake().capturing) return broken("wait: while capturing");
  const auto recorded = fake().recorded.find(number_of(event));
  if (recorded == fake().recorded.end()) return broken("wait: the event was not recorded");
  const FakeDriver::Record record = recorded->second;
  fake().submit(stream, [record] { fake().catch_up(record.stream, record.submitted); });
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream stream) {
  ENTER_CURRENT(cuEventRecord);
  if (fake().capturing) return broken("record: while capturing");
  const std::size_t number = number_of(event);
  fake().submit(stream, [number] { fake().reached[number] = fake().milliseconds; });
  fake().recorded[number] = {stream, fake().queues[stream].submitted, 0};
  return CUDA_SUCCESS;
}

CUresult event_synchronize(CUevent event) {
  ENTER_CURRENT(cuEventSynchronize);
  if (fake().capturing) return broken("synchronize: while capturing");
  const FakeDriver::Record& record = fake().recorded[number_of(event)];
  fake().catch_up(record.stream, record.submitted);
  return fake().fault;
}

// An event that was never recorded counts as reached, as with the real one.
CUresult event_query(CUevent event) {
  ENTER_CURRENT(cuEventQuery);
  FakeDriver::Record& record = fake().recorded[number_of(event)];
  if (fake().queues[record.stream].done() < record.submitted) {
    if (record.queries++ < fake().queries_before_done) return CUDA_ERROR_NOT_READY;
    fake().catch_up(record.stream, record.submitted);
  }
  return fake().fault;
}

CUresult event_elapsed(float* milliseconds, CUevent first, CUevent second) {
  ENTER_CURRENT(cuEventElapsedTime);
  const FakeDriver& driver = fake();
  for (const std::size_t number : {number_of(first), number_of(second)}) {
    const auto recorded = driver.recorded.find(number);
    if (recorded == driver.recorded.end()) return broken("elapsed: an event was not recorded");
    const FakeDriver::Record& record = recorded->second;
    if (record.submitted > driver.queues.at(record.stream).done()) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = driver.reached.at(number_of(second)) - driver.reached.at(number_of(first));
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

CUresult function_attribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER_CURRENT(cuFuncSetAttribute);
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    return value >= 0 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value > fake().shared_bytes_optin) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  fake().shared_bytes[number_of(function)] = static_cast<unsigned>(value);
  return CUDA_SUCCESS;
}

CUresult occupancy(int* blocks, CUfunction function, int threads, std::size_t shared_bytes) {
  ENTER_CURRENT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (threads <= 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
  // More than was asked for fits nowhere.
  const bool fits = shared_bytes <= std::max(48U << 10, fake().shared_bytes[number_of(function)]);
  *blocks = fits ? fake().blocks_that_fit : 0;
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                CUstream stream, void** parameters, void** extra) {
  ENTER_CURRENT(cuLaunchKernel);
  if (grid_x == 0 || grid_y == 0 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
      block_z != 1 || parameters == nullptr || extra != nullptr) {
    return broken("launch: shape");
  }
  if (shared_bytes > std::max(48U << 10, fake().shared_bytes[number_of(function)])) {
    return broken("launch: more shared memory than was asked for");
  }
  FakeDriver::Launch noted{kernel_of(function), {grid_x, grid_y, block_x, shared_bytes}, {}, {}};
  noted.params.resize(kernel_info(noted.kernel).parameter_bytes);
  std::memcpy(noted.params.data(), parameters[0], noted.params.size());
  fake().take(stream, std::move(noted));
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

CUresult graph_launch(CUgraphExec executable, CUstream stream) {
  ENTER_CURRENT(cuGraphLaunch);
  const auto found = fake().executables.find(number_of(executable));
  if (found == fake().executables.end()) return broken("launch: no such graph");
  fake().submit(stream, [number = found->first] {
    for (const FakeDriver::Launch& launch : fake().executables.at(number)) fake().run(launch);
  });
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

void fill_stream_functions(DriverApi& api) {
  api.cuStreamCreate = stream_create;
  api.cuStreamDestroy = stream_destroy;
  api.cuStreamSynchronize = stream_synchronize;
  api.cuStreamWaitEvent = stream_wait_event;
  api.cuStreamBeginCapture = begin_capture;
  api.cuStreamEndCapture = end_capture;
  api.cuEventCreate = event_create;
  api.cuEventDestroy = event_destroy;
  api.cuEventRecord = event_record;
  api.cuEventSynchronize = event_synchronize;
  api.cuEventQuery = event_query;
  api.cuEventElapsedTime = event_elapsed;
  api.cuModuleLoadData = module_load;
  api.cuModuleUnload = module_unload;
  api.cuModuleGetFunction = module_function;
  api.cuFuncLoad = function_load;
  api.cuFuncGetParamInfo = function_parameter;
  api.cuFuncSetAttribute = function_attribute;
  api.cuLaunchKernel = launch;
  api.cuOccupancyMaxActiveBlocksPerMultiprocessor = occupancy;
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
  api.cuMemGetInfo = memory_info;
  fill_memory_functions(api);
  fill_stream_functions(api);
  return api;
}

void FakeDriver::submit(CUstream stream, std::function<void()> work) {
  Stream& to = queues[stream];
  ++to.submitted;
  to.queue.push_back(std::move(work));
  if (!runs_late) catch_up(stream);
}

void FakeDriver::catch_up(CUstream stream, std::size_t count) {
  Stream& of = queues[stream];
  while (of.done() < count) {
    const std::function<void()> work = std::move(of.queue.front());
    of.queue.pop_front();
    work();
  }
}

void FakeDriver::catch_up(CUstream stream) { catch_up(stream, queues[stream].submitted); }

std::size_t FakeDriver::outstanding() const {
  std::size_t sum = 0;
  for (const auto& [stream, each] : queues) sum += each.queue.size();
  return sum;
}

void FakeDriver::take(CUstream stream, Launch launch) {
  if (capturing) {
    captured.push_back(std::move(launch));
    return;
  }
  launches.push_back(launch);
  submit(stream, [launch = std::move(launch)] { fake().run(launch); });
}

void FakeDriver::run(const Launch& launch) {
  if (!runs_kernels || fault != CUDA_SUCCESS) return;
  if (launch.library) return launch.library();
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
