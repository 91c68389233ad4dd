#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "base/log.h"
#include "device/cpu/address_space.h"
#include "device/cpu/fast_ops.h"
#include "device/cpu/host_memory.h"
#include "device/cpu/recording_ops.h"
#include "device/cpu/reference/reference_ops.h"

namespace sluice {
namespace {

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

constexpr std::align_val_t kHostAlignment{64};

class CpuDevice final : public Device {
 public:
  CpuDevice(std::unique_ptr<ThreadPool> pool, std::unique_ptr<Ops> ops, DeviceTraits traits)
      : pool_(std::move(pool)), ops_(std::move(ops)), traits_(std::move(traits)) {}

  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return read_host_memory("/"); }

  Result<AddressRange> reserve(std::size_t bytes) override { return space_.reserve(bytes); }
  void release(AddressRange range) override { space_.release(range); }
  Status back(AddressRange range, std::size_t offset, std::size_t bytes) override;
  Status back_with_file(AddressRange range, std::size_t offset, int fd,
                        std::size_t bytes) override {
    return space_.back_with_file(range, offset, fd, bytes);
  }
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) override {
    space_.unback(range, offset, bytes);
  }
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) override {
    return space_.protect(range, offset, bytes, protection);
  }

  Result<std::byte*> take_host_memory(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new(bytes, kHostAlignment));
  }
  void give_host_memory(std::byte* memory) override { ::operator delete(memory, kHostAlignment); }

  Status copy_to_device(void* target, const void* source, std::size_t bytes) override {
    return copy(target, source, bytes);
  }
  Status copy_to_host(void* target, const void* source, std::size_t bytes) override {
    return copy(target, source, bytes);
  }
  // Ops run when they are called: nothing is ever outstanding.
  Status mark(std::size_t number) override {
    marks_.at(number) = clock_.now();
    return {};
  }
  Status wait(std::size_t) override { return {}; }
  Result<Duration> time_between(std::size_t first, std::size_t second) override {
    return marks_.at(second) - marks_.at(first);
  }
  Status synchronize() override { return {}; }

  Ops& ops() override { return ops_; }
  Status begin_capture() override { return ops_.begin_capture(); }
  Result<std::unique_ptr<Graph>> end_capture() override { return ops_.end_capture(); }
  Status replay(const Graph& graph) override { return ops_.replay(graph); }

 private:
  Status copy(void* target, const void* source, std::size_t bytes) {
    if (ops_.capturing()) return internal_error("copy: not possible while capturing");
    if (bytes > 0 && target != source) std::memmove(target, source, bytes);
    return {};
  }

  AddressSpace space_;
  std::unique_ptr<ThreadPool> pool_;  // empty when borrowed
  RecordingOps ops_;
  DeviceTraits traits_;
  SystemClock clock_;
  std::array<TimePoint, kMarks> marks_ = {};
};

// The kernel gives out memory it does not have and kills later, so ask first.
Status CpuDevice::back(AddressRange range, std::size_t offset, std::size_t bytes) {
  const auto info = memory_info();
  if (!info) {
    log_warning("cpu: free memory is unknown: " + info.error().message);
  } else if (bytes > static_cast<std::size_t>(std::max<std::int64_t>(info->free_bytes, 0))) {
    return resource_exhausted(fmt::format("cpu: {} bytes of memory asked for, {} are free of {}",
                                          bytes, info->free_bytes, info->total_bytes));
  }
  return space_.back(range, offset, bytes);
}

Result<CpuIsa> choose_isa(std::optional<CpuIsa> wanted) {
  const auto isas = available_cpu_isas();
  if (!wanted) return isas.back();
  if (std::find(isas.begin(), isas.end(), *wanted) != isas.end()) return *wanted;
  return unsupported(fmt::format("cpu: this machine cannot run {} kernels; its best are {}",
                                 cpu_isa_name(*wanted), cpu_isa_name(isas.back())));
}

std::unique_ptr<Ops> make_ops(CpuIsa isa, ThreadPool& pool) {
  switch (isa) {
    case CpuIsa::kReference: return std::make_unique<ReferenceOps>();
    case CpuIsa::kAvx2: return std::make_unique<FastOps>(pool, kernels::avx2_kernels());
    case CpuIsa::kAvx512: return std::make_unique<FastOps>(pool, kernels::avx512_kernels());
    case CpuIsa::kAvx512Bf16:
      return std::make_unique<FastOps>(pool, kernels::avx512_bf16_kernels());
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options) {
  if (options.threads < 0) {
    return invalid_argument(
        fmt::format("cpu: {} threads asked for, expected 1 or more, or 0 for "
                    "one per CPU",
                    options.threads));
  }
  ASSIGN_OR_RETURN(const CpuIsa isa, choose_isa(options.isa));
  std::unique_ptr<ThreadPool> own_pool;
  ThreadPool* pool = options.pool;
  if (pool == nullptr) {
    own_pool =
        std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : available_cpus());
    pool = own_pool.get();
  }
  DeviceTraits traits;
  traits.name = "cpu";
  traits.description = fmt::format("{}, {} kernels, {} thread{}", cpu_model_name(),
                                   cpu_isa_name(isa), pool->size(), pool->size() == 1 ? "" : "s");
  traits.host_accessible = true;
  traits.maps_files = true;
  traits.granularity = AddressSpace::kGranularity;
  traits.residual_dtype = DType::kF32;
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(std::move(own_pool), make_ops(isa, *pool), std::move(traits)));
}

}  // namespace sluice
