#include "device/cuda/gpu.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/log.h"

namespace sluice::cuda {
namespace {

Result<int> attribute(const DriverApi& api, CUdevice device, CUdevice_attribute which,
                      std::string_view what) {
  int value = 0;
  RETURN_IF_ERROR(check(api, api.cuDeviceGetAttribute(&value, which, device), what));
  return value;
}

Result<CUdevice> find_device(const DriverApi& api, int index) {
  int count = 0;
  RETURN_IF_ERROR(check(api, api.cuDeviceGetCount(&count), "cuda"));
  if (index < 0 || index >= count) {
    return invalid_argument(fmt::format("cuda:{}: no such device; this machine has {}: cuda:0{}",
                                        index, count,
                                        count > 1 ? fmt::format(" to cuda:{}", count - 1) : ""));
  }
  CUdevice device = 0;
  RETURN_IF_ERROR(check(api, api.cuDeviceGet(&device, index), fmt::format("cuda:{}", index)));
  return device;
}

// A fault is reported late: by any call after the launch of the kernel that caused it.
std::string blame(std::string_view call, std::string_view submitted) {
  return fmt::format(
      "{}, or something submitted before it, {} last (run with CUDA_LAUNCH_BLOCKING=1 and "
      "--enforce-eager to see which op fails)",
      call, submitted);
}

}  // namespace

std::string describe(const GpuInfo& info) {
  return fmt::format("{}, capability {}.{}, {} multiprocessors, {:.1f} GiB", info.name, info.major,
                     info.minor, info.multiprocessors,
                     static_cast<double>(info.memory_bytes) / 0x1p30);
}

Result<GpuInfo> inspect_gpu(const DriverApi& api, int index) {
  ASSIGN_OR_RETURN(const CUdevice device, find_device(api, index));
  const std::string name = fmt::format("cuda:{}", index);
  GpuInfo info;
  std::array<char, 256> text = {};
  RETURN_IF_ERROR(check(
      api, api.cuDeviceGetName(text.data(), static_cast<int>(text.size()) - 1, device), name));
  info.name = text.data();
  ASSIGN_OR_RETURN(info.major,
                   attribute(api, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, name));
  ASSIGN_OR_RETURN(info.minor,
                   attribute(api, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, name));
  ASSIGN_OR_RETURN(info.multiprocessors,
                   attribute(api, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, name));
  ASSIGN_OR_RETURN(
      info.shared_bytes,
      attribute(api, device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, name));
  std::size_t bytes = 0;
  RETURN_IF_ERROR(check(api, api.cuDeviceTotalMem(&bytes, device), name));
  info.memory_bytes = static_cast<std::int64_t>(bytes);
  return info;
}

Result<std::unique_ptr<Gpu>> Gpu::open(const DriverApi& api, int index) {
  ASSIGN_OR_RETURN(const CUdevice device, find_device(api, index));
  ASSIGN_OR_RETURN(GpuInfo info, inspect_gpu(api, index));
  std::unique_ptr<Gpu> gpu(new Gpu(api, index, device, std::move(info)));
  ASSIGN_OR_RETURN(
      const int virtual_memory,
      attribute(api, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, gpu->name_));
  if (virtual_memory == 0) {
    return unsupported(fmt::format("{}: {} cannot map virtual memory; use --device cpu", gpu->name_,
                                   gpu->info_.name));
  }
  RETURN_IF_ERROR(gpu->check(api.cuDevicePrimaryCtxRetain(&gpu->context_, device), "its context"));
  RETURN_IF_ERROR(gpu->make_current());
  for (Lane& lane : gpu->lanes_) RETURN_IF_ERROR(gpu->open_lane(lane));
  RETURN_IF_ERROR(
      gpu->check(api.cuEventCreate(&gpu->ordered_, CU_EVENT_DISABLE_TIMING), "an event"));
  return gpu;
}

Status Gpu::open_lane(Lane& lane) {
  RETURN_IF_ERROR(check(api_.cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING), "a stream"));
  for (CUevent& mark : lane.marks) {
    RETURN_IF_ERROR(check(api_.cuEventCreate(&mark, CU_EVENT_DEFAULT), "an event"));
  }
  return {};
}

Gpu::Gpu(const DriverApi& api, int index, CUdevice device, GpuInfo info)
    : api_(api), name_(fmt::format("cuda:{}", index)), device_(device), info_(std::move(info)) {}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  // After a fault these fail too; a destructor cannot report it.
  static_cast<void>(api_.cuCtxSetCurrent(context_));
  if (ordered_ != nullptr) static_cast<void>(api_.cuEventDestroy(ordered_));
  for (const Lane& lane : lanes_) {
    for (CUevent mark : lane.marks) {
      if (mark != nullptr) static_cast<void>(api_.cuEventDestroy(mark));
    }
    if (lane.stream != nullptr) static_cast<void>(api_.cuStreamDestroy(lane.stream));
  }
  static_cast<void>(api_.cuDevicePrimaryCtxRelease(device_));
}

Status Gpu::make_current() const {
  return cuda::check(api_, api_.cuCtxSetCurrent(context_), name_);
}

Result<MemoryInfo> Gpu::memory_info() const {
  RETURN_IF_ERROR(make_current());
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  RETURN_IF_ERROR(cuda::check(api_, api_.cuMemGetInfo(&free_bytes, &total_bytes),
                              fmt::format("{}: free memory", name_)));
  return MemoryInfo{static_cast<std::int64_t>(total_bytes), static_cast<std::int64_t>(free_bytes)};
}

Status Gpu::check(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return {};
  Error error = driver_error(api_, result, fmt::format("{}: {}", name_, what));
  if (is_sticky(result)) keep(result, error);
  return error;
}

void Gpu::submitted(CUresult result, std::string_view what) {
  const std::string_view before = std::exchange(last_submitted_, what);
  if (result == CUDA_SUCCESS) return;
  const std::string place = is_sticky(result) ? blame(what, before) : std::string(what);
  keep(result, driver_error(api_, result, fmt::format("{}: {}", name_, place)));
}

void Gpu::refuse(Error error) {
  if (!ready()) return;
  failure_ = with_context(name_, std::move(error));
  refused_ = true;
}

void Gpu::keep(CUresult result, Error error) {
  if (!fault_) return;
  if (is_sticky(result)) {
    log_error(error.message);
    fault_ = std::move(error);
  } else if (failure_) {
    failure_ = std::move(error);
  }
}

Status Gpu::take_error() {
  refused_ = false;
  Status failure = std::exchange(failure_, Status());
  return fault_ ? failure : fault_;
}

Status Gpu::mark(Queue queue, std::size_t number) {
  const Lane& lane = of(queue);
  submitted(api_.cuEventRecord(lane.marks[number], lane.stream), last_submitted_);
  return take_error();
}

Status Gpu::wait(Queue queue, std::size_t number) {
  RETURN_IF_ERROR(make_current());
  waited(api_.cuEventSynchronize(of(queue).marks[number]));
  return take_error();
}

Result<bool> Gpu::reached(Queue queue, std::size_t number) {
  RETURN_IF_ERROR(make_current());
  const CUresult result = api_.cuEventQuery(of(queue).marks[number]);
  if (result == CUDA_ERROR_NOT_READY) return false;
  waited(result);
  RETURN_IF_ERROR(take_error());
  return true;
}

Status Gpu::wait_in(Queue waiter, Queue marked, std::size_t number) {
  submitted(
      api_.cuStreamWaitEvent(of(waiter).stream, of(marked).marks[number], CU_EVENT_WAIT_DEFAULT),
      last_submitted_);
  return take_error();
}

void Gpu::order_transfers_after_compute() {
  submitted(api_.cuEventRecord(ordered_, of(Queue::kCompute).stream), last_submitted_);
  submitted(api_.cuStreamWaitEvent(of(Queue::kTransfer).stream, ordered_, CU_EVENT_WAIT_DEFAULT),
            last_submitted_);
}

Result<Duration> Gpu::time_between(std::size_t first, std::size_t second) {
  const auto& marks = of(Queue::kCompute).marks;
  float milliseconds = 0.0F;
  RETURN_IF_ERROR(check(api_.cuEventElapsedTime(&milliseconds, marks[first], marks[second]),
                        "the time between two marks"));
  return Duration(static_cast<Duration::rep>(static_cast<double>(milliseconds) * 1e6));
}

Status Gpu::synchronize(Queue queue) {
  RETURN_IF_ERROR(make_current());
  waited(api_.cuStreamSynchronize(of(queue).stream));
  return take_error();
}

Status Gpu::synchronize() {
  drain();
  return take_error();
}

void Gpu::drain() {
  static_cast<void>(make_current());
  for (const Lane& lane : lanes_) waited(api_.cuStreamSynchronize(lane.stream));
}

void Gpu::waited(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  keep(result,
       driver_error(api_, result, fmt::format("{}: {}", name_, blame("waiting", last_submitted_))));
}

}  // namespace sluice::cuda
