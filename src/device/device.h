// Device: one place where a model runs, memory and execution. Implementations: device/cpu,
// device/cuda, fakes in tests. Code asks for traits, never for a type.
//
// Memory is taken only through address ranges: reserved once, backed piece by piece (an Arena lays
// names over them). Nothing is reserved, backed or freed while a step runs after warm-up.
// Owner: apps, through make_cpu_device / make_cuda_device. Threads: the engine's thread, but for
// memory_info(), which any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "device/graph.h"
#include "device/ops.h"

namespace sluice {

struct DeviceTraits {
  std::string name;              // "cpu", "cuda:0"
  std::string description;       // model name and instruction set, or GPU name and capability
  bool host_accessible = false;  // pointers into its memory may be used by the host
  bool maps_files = false;       // back_with_file works: weights need no copy
  // What is submitted runs while the host goes on: the engine then plans a step ahead, and rows are
  // sampled on the device where that is possible.
  bool asynchronous = false;
  std::size_t granularity = 0;  // bytes; every offset and size given to back() is a multiple
  DType residual_dtype = DType::kF32;
  // Matmuls with F16 weights take F16 inputs, as they do with BF16; and those with FP8 weights take
  // inputs of the dtype of the model's other weights.
  bool f16_inputs = false;
  std::string no_fp8;  // why weights cannot be in FP8 here; empty where they can
  // Dtype of the inputs of a matmul with weights of this dtype.
  DType matmul_input_dtype(DType weights, DType others = DType::kF32) const {
    if (weights == DType::kF8E4M3 && f16_inputs) weights = others;
    const bool as_weights = weights == DType::kBF16 || (weights == DType::kF16 && f16_inputs);
    return as_weights ? weights : residual_dtype;
  }
};

struct MemoryInfo {
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // that this process may still take
};

struct AddressRange {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

enum class Protection : std::uint8_t { kReadOnly, kReadWrite };

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceTraits& traits() const = 0;
  virtual Result<MemoryInfo> memory_info() const = 0;

  // Reserves address space at the first free slot of the device's fixed series of bases (the
  // same series in every process, so that captured pointers can stay valid). Where all are taken a
  // GPU's driver may give another place, with a warning; else kUnavailable. `bytes` is rounded up
  // to the granularity.
  virtual Result<AddressRange> reserve(std::size_t bytes) = 0;
  virtual void release(AddressRange range) = 0;

  // Gives [offset, offset + bytes) of a range zeroed memory. kResourceExhausted when there is
  // none. REQUIRES: multiples of the granularity; not backed yet.
  virtual Status back(AddressRange range, std::size_t offset, std::size_t bytes) = 0;
  // The same, as a private read-only view of a file from its start. Bytes past the end of the
  // file in the last page read as zero. kUnsupported where traits().maps_files is false.
  virtual Status back_with_file(AddressRange range, std::size_t offset, int fd,
                                std::size_t bytes) = 0;
  virtual void unback(AddressRange range, std::size_t offset, std::size_t bytes) = 0;
  virtual Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                         Protection protection) = 0;

  // Memory of the host for copies that run while the host goes on; see HostBuffer.
  virtual Result<std::byte*> take_host_memory(std::size_t bytes) = 0;
  virtual void give_host_memory(std::byte* memory) = 0;

  // Copies on the compute stream. Host memory must stay valid, what is copied unchanged, until the
  // copy has run: until synchronize(), or wait() for a later mark. Other memory than
  // take_host_memory's works too, but the host may wait for the copy.
  virtual Status copy_to_device(void* target, const void* source, std::size_t bytes) = 0;
  virtual Status copy_to_host(void* target, const void* source, std::size_t bytes) = 0;
  // Marks what has been submitted so far, by one of kMarks numbers that are used in turn, and waits
  // for what was marked last by a number. Errors as synchronize().
  static constexpr std::size_t kMarks = 8;
  virtual Status mark(std::size_t number) = 0;
  virtual Status wait(std::size_t number) = 0;
  // Time on the device between two marks that it has reached, the second no earlier.
  virtual Result<Duration> time_between(std::size_t first, std::size_t second) = 0;
  // Waits for everything submitted; the first error of anything submitted is returned, for ever.
  virtual Status synchronize() = 0;

  virtual Ops& ops() = 0;

  // Between the two, ops are recorded and not run. Captures do not nest.
  virtual Status begin_capture() = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture() = 0;
  // Runs a graph of this device, in order, with the batch that lies in device memory now.
  virtual Status replay(const Graph& graph) = 0;
};

}  // namespace sluice
