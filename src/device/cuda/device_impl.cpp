#include "device/cuda/device_impl.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "device/cuda/attention_launch.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/gpu.h"
#include "device/cuda/graph_capture.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/library_matmul.h"
#include "device/cuda/virtual_memory.h"

namespace sluice::cuda {
namespace {

constexpr int kFp8Capability = 9;  // and later: major number

CUdeviceptr device_address(const void* pointer) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(pointer));
}

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<Gpu> gpu, VirtualMemory memory, std::unique_ptr<KernelSet> kernels,
             const CudaOptions& options);
  // If the library does not start, built-in kernels do its work.
  void start_library(const CublasLtApi& api);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return gpu_->memory_info(); }

  Result<AddressRange> reserve(std::size_t bytes) override { return memory_.reserve(bytes); }
  Result<AddressRange> reserve_at(std::byte* base, std::size_t bytes) override {
    return memory_.reserve_at(base, bytes);
  }
  void release(AddressRange range) override { memory_.release(range); }
  Status back(AddressRange range, std::size_t offset, std::size_t bytes,
              const Backing& backing) override;
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) override {
    memory_.unback(range, offset, bytes);
  }
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) override {
    return memory_.protect(range, offset, bytes, protection);
  }
  Result<FileDescriptor> export_memory(AddressRange range, std::size_t offset) override {
    return memory_.export_memory(range, offset);
  }

  Result<std::byte*> take_host_memory(std::size_t bytes) override;
  void give_host_memory(std::byte* memory) override;
  Status copy(Queue queue, CopyKind kind, void* target, const void* source,
              std::size_t bytes) override;
  Status mark(Queue queue, std::size_t number) override;
  Status wait(Queue queue, std::size_t number) override;
  Result<bool> reached(Queue queue, std::size_t number) override;
  Status wait_in(Queue waiter, Queue marked, std::size_t number) override;
  Result<Duration> time_between(std::size_t first, std::size_t second) override;
  Status synchronize(Queue queue) override;

  Ops& ops() override { return ops_; }
  Status begin_capture() override;
  Result<OpList> end_listing() override;
  Result<std::unique_ptr<Graph>> make_graph(OpList ops) override;
  Status replay(const Graph& graph) override;

 private:
  // Called before any submission. Checks that no capture is in progress and no error is kept, and
  // makes the context current.
  Status prepare(std::string_view what);
  bool is_pinned(const void* memory, std::size_t bytes) const;
  // Called after the submission of a copy from or to host memory.
  Status copied(Queue queue, const void* memory, std::size_t bytes);

  std::unique_ptr<Gpu> gpu_;
  VirtualMemory memory_;
  std::unique_ptr<KernelSet> kernels_;
  std::unique_ptr<LibraryMatmul> library_;  // or null
  CudaOps ops_;
  DeviceTraits traits_;
  std::map<const std::byte*, std::size_t> pinned_;  // memory of take_host_memory: its size in bytes
};

CudaDevice::CudaDevice(std::unique_ptr<Gpu> gpu, VirtualMemory memory,
                       std::unique_ptr<KernelSet> kernels, const CudaOptions& options)
    : gpu_(std::move(gpu)),
      memory_(std::move(memory)),
      kernels_(std::move(kernels)),
      ops_(*gpu_, *kernels_, options.deterministic) {
  traits_.name = gpu_->name();
  traits_.description = describe(gpu_->info());
  traits_.numerics = fmt::format("{}, {}", traits_.description,
                                 options.deterministic ? "deterministic" : "not deterministic");
  traits_.granularity = memory_.chunk_bytes();
  traits_.asynchronous = true;
  traits_.residual_dtype = DType::kF32;
  traits_.f16_inputs = true;
  traits_.no_integers = fmt::format("{} has no kernels for integer weights", gpu_->name());
  if (const GpuInfo& info = gpu_->info(); info.major < kFp8Capability) {
    traits_.no_fp8 = fmt::format("{} has capability {}.{}, and weights in FP8 need {}.0 or later",
                                 gpu_->name(), info.major, info.minor, kFp8Capability);
  }
}

CudaDevice::~CudaDevice() {
  // Submitted work still uses memory and code. Members free them with the context current.
  gpu_->drain();
}

void CudaDevice::start_library(const CublasLtApi& api) {
  auto library = LibraryMatmul::create(api, *gpu_);
  if (!library) {
    log_warning(fmt::format("{}: {}; using built-in kernels for all matrix products (slower)",
                            traits_.name, library.error().message));
    return;
  }
  library_ = std::move(*library);
  ops_.use_library(*library_);
  traits_.library_workspace = LibraryMatmul::kWorkspaceBytes;
}

Status CudaDevice::prepare(std::string_view what) {
  if (ops_.recording())
    return internal_error(fmt::format("{}: not possible while capturing", what));
  RETURN_IF_ERROR(gpu_->take_error());
  return gpu_->make_current();
}

Status CudaDevice::back(AddressRange range, std::size_t offset, std::size_t bytes,
                        const Backing& backing) {
  RETURN_IF_ERROR(prepare("backing memory"));
  return memory_.back(range, offset, bytes, backing);
}

Result<std::byte*> CudaDevice::take_host_memory(std::size_t bytes) {
  RETURN_IF_ERROR(gpu_->make_current());
  void* memory = nullptr;
  RETURN_IF_ERROR(
      gpu_->check(gpu_->api().cuMemHostAlloc(&memory, bytes, 0), "pinned memory of the host"));
  pinned_[static_cast<std::byte*>(memory)] = bytes;
  return static_cast<std::byte*>(memory);
}

void CudaDevice::give_host_memory(std::byte* memory) {
  pinned_.erase(memory);
  static_cast<void>(gpu_->make_current());
  static_cast<void>(gpu_->api().cuMemFreeHost(memory));
}

bool CudaDevice::is_pinned(const void* memory, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(memory);
  const auto after = pinned_.upper_bound(begin);
  if (after == pinned_.begin()) return false;
  const auto& [base, size] = *std::prev(after);
  return begin + bytes <= base + size;
}

// The driver copies pageable memory through its own buffers, possibly after the call. After the
// wait the caller may use the memory again.
Status CudaDevice::copied(Queue queue, const void* memory, std::size_t bytes) {
  return is_pinned(memory, bytes) ? gpu_->take_error() : synchronize(queue);
}

Status CudaDevice::copy(Queue queue, CopyKind kind, void* target, const void* source,
                        std::size_t bytes) {
  RETURN_IF_ERROR(prepare("copy"));
  const DriverApi& api = gpu_->api();
  CUstream stream = gpu_->stream(queue);
  switch (kind) {
    case CopyKind::kHostToDevice:
      gpu_->submitted(api.cuMemcpyHtoDAsync(device_address(target), source, bytes, stream),
                      "copy to the device");
      return copied(queue, source, bytes);
    case CopyKind::kDeviceToHost:
      gpu_->submitted(api.cuMemcpyDtoHAsync(target, device_address(source), bytes, stream),
                      "copy to the host");
      return copied(queue, target, bytes);
    case CopyKind::kDeviceToDevice:
      gpu_->submitted(
          api.cuMemcpyDtoDAsync(device_address(target), device_address(source), bytes, stream),
          "copy within the device");
      return gpu_->take_error();
  }
  return internal_error("copy: no such kind");
}

Status CudaDevice::mark(Queue queue, std::size_t number) {
  RETURN_IF_ERROR(prepare("mark"));
  return gpu_->mark(queue, number);
}

Status CudaDevice::wait(Queue queue, std::size_t number) {
  if (ops_.recording()) return internal_error("wait: not possible while capturing");
  return gpu_->wait(queue, number);
}

Result<bool> CudaDevice::reached(Queue queue, std::size_t number) {
  RETURN_IF_ERROR(prepare("asking for a mark"));
  return gpu_->reached(queue, number);
}

Status CudaDevice::wait_in(Queue waiter, Queue marked, std::size_t number) {
  RETURN_IF_ERROR(prepare("waiting for a queue"));
  return gpu_->wait_in(waiter, marked, number);
}

Result<Duration> CudaDevice::time_between(std::size_t first, std::size_t second) {
  RETURN_IF_ERROR(prepare("time"));
  return gpu_->time_between(first, second);
}

Status CudaDevice::synchronize(Queue queue) {
  if (ops_.recording()) return internal_error("synchronize: not possible while capturing");
  return gpu_->synchronize(queue);
}

Status CudaDevice::begin_capture() {
  if (ops_.recording()) {
    return internal_error("capture: a capture is in progress already, and captures do not nest");
  }
  RETURN_IF_ERROR(prepare("capture"));
  ops_.start_recording();
  return {};
}

Result<OpList> CudaDevice::end_listing() {
  if (!ops_.recording()) return internal_error("capture: none is on");
  return ops_.end_recording();
}

Result<std::unique_ptr<Graph>> CudaDevice::make_graph(OpList ops) {
  RETURN_IF_ERROR(prepare("making a graph"));
  ASSIGN_OR_RETURN(std::unique_ptr<CudaGraph> made, capture_graph(*gpu_, ops_, std::move(ops)));
  return std::unique_ptr<Graph>(std::move(made));
}

Status CudaDevice::replay(const Graph& graph) {
  RETURN_IF_ERROR(prepare("replay"));
  const auto* captured = dynamic_cast<const CudaGraph*>(&graph);
  if (captured == nullptr || &captured->gpu() != gpu_.get()) {
    return invalid_argument(gpu_->name() + ": replay: the graph was made by another device");
  }
  return run_graph(*gpu_, ops_, *captured);
}

}  // namespace

Result<std::unique_ptr<Device>> make_device(const DriverApi& api, int index,
                                            const CudaOptions& options,
                                            const CublasLtApi* library) {
  ASSIGN_OR_RETURN(std::unique_ptr<Gpu> gpu, Gpu::open(api, index));
  ASSIGN_OR_RETURN(VirtualMemory memory, VirtualMemory::create(*gpu));
  ASSIGN_OR_RETURN(std::unique_ptr<KernelSet> kernels, KernelSet::load(*gpu));
  RETURN_IF_ERROR(check_attention_blocks(*kernels, gpu->info()));
  RETURN_IF_ERROR(check_matmul_blocks(*kernels, gpu->info()));
  auto device =
      std::make_unique<CudaDevice>(std::move(gpu), std::move(memory), std::move(kernels), options);
  if (library != nullptr && !options.deterministic) device->start_library(*library);
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace sluice::cuda
