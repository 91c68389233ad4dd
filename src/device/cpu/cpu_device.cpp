#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <mutex>
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
#include "device/cpu/transfer_queue.h"

namespace sluice {
namespace {

constexpr std::int64_t kCacheLine = 64;

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
  CpuDevice(ThreadPool& pool, std::unique_ptr<ThreadPool> own_pool, std::unique_ptr<Ops> ops,
            DeviceTraits traits)
      : own_pool_(std::move(own_pool)),
        pool_(pool),
        transfers_(pool, clock_),
        ops_(std::move(ops)),
        traits_(std::move(traits)) {}

  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return read_host_memory("/"); }

  Result<AddressRange> reserve(std::size_t bytes) override { return space_.reserve(bytes); }
  Result<AddressRange> reserve_at(std::byte* base, std::size_t bytes) override {
    return space_.reserve_at(base, bytes);
  }
  void release(AddressRange range) override { space_.release(range); }
  Status back(AddressRange range, std::size_t offset, std::size_t bytes,
              const Backing& backing) override;
  void unback(AddressRange range, std::size_t offset, std::size_t bytes) override {
    space_.unback(range, offset, bytes);
  }
  Status populate(AddressRange range, std::size_t offset, std::size_t bytes) override;
  void discard(AddressRange range, std::size_t offset, std::size_t bytes) override {
    space_.discard(range, offset, bytes);
  }
  Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                 Protection protection) override {
    return space_.protect(range, offset, bytes, protection);
  }

  Result<FileDescriptor> export_memory(AddressRange, std::size_t) override {
    return unsupported("cpu: memory of this process cannot be exported; share a memfd instead");
  }

  Result<std::byte*> take_host_memory(std::size_t bytes) override {
    return static_cast<std::byte*>(::operator new(bytes, kHostAlignment));
  }
  void give_host_memory(std::byte* memory) override { ::operator delete(memory, kHostAlignment); }

  // The compute queue runs what is submitted at once, so it is always empty.
  Status copy(Queue queue, CopyKind kind, void* target, const void* source,
              std::size_t bytes) override;
  Status mark(Queue queue, std::size_t number) override;
  Status wait(Queue queue, std::size_t number) override;
  Result<bool> reached(Queue queue, std::size_t number) override;
  Status wait_in(Queue waiter, Queue marked, std::size_t number) override;
  Result<Duration> time_between(std::size_t first, std::size_t second) override {
    return marks_.at(second) - marks_.at(first);
  }
  Status synchronize(Queue queue) override {
    if (queue == Queue::kTransfer) transfers_.finish();
    return {};
  }

  Ops& ops() override { return ops_; }
  Status begin_capture() override { return ops_.begin_capture(); }
  Result<OpList> end_listing() override { return ops_.end_capture(); }
  Result<std::unique_ptr<Graph>> make_graph(OpList ops) override {
    if (ops_.capturing()) return internal_error("making a graph: not possible while capturing");
    return std::make_unique<Graph>(std::move(ops));
  }
  Status replay(const Graph& graph) override { return ops_.replay(graph.ops()); }

 private:
  AddressSpace space_;
  std::unique_ptr<ThreadPool> own_pool_;  // empty when the pool is borrowed
  ThreadPool& pool_;
  SystemClock clock_;
  TransferQueue transfers_;
  RecordingOps ops_;
  DeviceTraits traits_;
  std::array<TimePoint, kMarks> marks_ = {};
};

Status CpuDevice::copy(Queue queue, CopyKind, void* target, const void* source, std::size_t bytes) {
  if (ops_.capturing()) return internal_error("copy: not possible while capturing");
  if (queue == Queue::kTransfer) {
    if (bytes > 0 && target != source) transfers_.add(target, source, bytes);
    return {};
  }
  if (bytes > 0 && target != source) std::memmove(target, source, bytes);
  return {};
}

Status CpuDevice::mark(Queue queue, std::size_t number) {
  if (queue == Queue::kTransfer) {
    transfers_.mark(number);
  } else {
    marks_.at(number) = clock_.now();
  }
  return {};
}

Status CpuDevice::wait(Queue queue, std::size_t number) {
  if (queue == Queue::kTransfer) transfers_.finish_until(number);
  return {};
}

Result<bool> CpuDevice::reached(Queue queue, std::size_t number) {
  if (queue == Queue::kCompute) return true;
  if (!transfers_.reached(number)) transfers_.advance();
  return transfers_.reached(number);
}

Status CpuDevice::wait_in(Queue waiter, Queue marked, std::size_t number) {
  // The compute queue runs what is submitted next at once.
  if (waiter == Queue::kCompute) return wait(marked, number);
  return {};
}

// The kernel overcommits memory and may kill the process later, so check the free memory first.
Status CpuDevice::back(AddressRange range, std::size_t offset, std::size_t bytes,
                       const Backing& backing) {
  if (backing.kind != Backing::Kind::kMemory) return space_.back(range, offset, bytes, backing);
  const auto info = memory_info();
  if (!info) {
    log_warning("cpu: free memory is unknown: " + info.error().message);
  } else if (bytes > static_cast<std::size_t>(std::max<std::int64_t>(info->free_bytes, 0))) {
    return resource_exhausted(fmt::format("cpu: {} bytes of memory requested, {} are free of {}",
                                          bytes, info->free_bytes, info->total_bytes));
  }
  return space_.back(range, offset, bytes, backing);
}

// All threads take a share, because the system clears each page.
Status CpuDevice::populate(AddressRange range, std::size_t offset, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  std::mutex mutex;
  Status status;
  pool_.parallel_for(static_cast<int>((bytes + kPiece - 1) / kPiece), [&](int piece) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
    Status done = space_.populate(range, offset + begin, std::min(kPiece, bytes - begin));
    if (done) return;
    const std::lock_guard lock(mutex);
    status = std::move(done);
  });
  return status;
}

Result<CpuIsa> choose_isa(std::optional<CpuIsa> wanted) {
  const auto isas = available_cpu_isas();
  if (!wanted) return isas.back();
  if (std::find(isas.begin(), isas.end(), *wanted) != isas.end()) return *wanted;
  return unsupported(fmt::format("cpu: this machine cannot run {} kernels; its best are {}",
                                 cpu_isa_name(*wanted), cpu_isa_name(isas.back())));
}

// Null for the reference.
const kernels::KernelTable* kernels_of(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kReference: return nullptr;
    case CpuIsa::kAvx2: return &kernels::avx2_kernels();
    case CpuIsa::kAvx2Vnni: return &kernels::avx2_vnni_kernels();
    case CpuIsa::kAvx512: return &kernels::avx512_kernels();
    case CpuIsa::kAvx512Vnni: return &kernels::avx512_vnni_kernels();
    case CpuIsa::kAvx512Bf16: return &kernels::avx512_bf16_kernels();
    case CpuIsa::kAvx512Bf16Fma: return &kernels::avx512_bf16_fma_kernels();
    case CpuIsa::kAmx: return &kernels::amx_kernels();
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Device>> make_cpu_device(const CpuDeviceOptions& options) {
  if (options.threads < 0) {
    return invalid_argument(
        fmt::format("cpu: {} threads requested, expected 1 or more, or 0 for "
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
  traits.numerics = fmt::format("cpu, {} kernels", cpu_isa_name(isa));
  traits.host_accessible = true;
  traits.maps_files = true;
  traits.granularity = AddressSpace::kGranularity;
  traits.residual_dtype = DType::kF32;
  traits.row_spacing = kCacheLine;
  const kernels::KernelTable* const kernels = kernels_of(isa);
  std::unique_ptr<Ops> ops;
  if (kernels == nullptr) {
    ops = std::make_unique<ReferenceOps>();
  } else {
    ops = std::make_unique<FastOps>(*pool, *kernels);
    traits.fast_bf16 = kernels->packed_matmul != nullptr;
    traits.fp8_as_bf16 = kernels->matmul_bf16_f8 != nullptr;
  }
  return std::unique_ptr<Device>(
      std::make_unique<CpuDevice>(*pool, std::move(own_pool), std::move(ops), std::move(traits)));
}

}  // namespace sluice
