// Device: a place where a model runs: memory and execution. Implementations: device/cpu,
// device/cuda, fakes in tests. Code asks for traits, never for a type.
//
// Memory is taken only through address ranges. A range is reserved once and backed piece by piece
// with one of several kinds of memory (an Arena lays names over it). A range may be larger than
// what is backed; touching an address that is not backed faults.
//
// Two queues run what is submitted to them, each in order. Ops and graphs run on the compute queue.
// Copies run on either. The queues are independent of each other: only marks order them.
//
// Owner: apps, through make_cpu_device / make_cuda_device. Threads: the engine's thread;
// memory_info() may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"
#include "device/backing.h"
#include "device/graph.h"
#include "device/ops.h"

namespace sluice {

struct DeviceTraits {
  std::string name;         // "cpu", "cuda:0"
  std::string description;  // model name and instruction set, or GPU name and capability
  // Devices with equal texts compute equal bits with the same program and options.
  std::string numerics;
  bool host_accessible = false;  // pointers into its memory may be used by the host
  bool maps_files = false;       // Backing::file works: weights need no copy
  // Submitted work runs while the host goes on: the engine then plans a step ahead, and rows are
  // sampled on the device where that is possible.
  bool asynchronous = false;
  // Bytes of scratch memory that the device's libraries need, at a multiple of 256; 0: none. Its
  // owner names it in the arena and gives it to Ops::set_library_workspace(), so that graphs hold
  // only addresses of the arena. Without it the device works without its libraries.
  std::size_t library_workspace = 0;
  std::size_t granularity = 0;  // bytes; every offset and size given to back() is a multiple
  DType residual_dtype = DType::kF32;
  // Rows of products in the decoder's buffers begin an odd multiple of this many bytes apart; 0:
  // they follow one another. Rows a multiple of 4 KiB apart share few sets of a CPU's caches.
  std::int64_t row_spacing = 0;
  // Matmuls with F16 weights take F16 inputs, as they do with BF16; and those with FP8 weights take
  // inputs of the dtype of the model's other weights.
  bool f16_inputs = false;
  // Matmuls with BF16 weights run on units that have at least twice the rate of those for F16 and
  // F32.
  bool fast_bf16 = false;
  // Matmuls with FP8 weights take BF16 inputs, and round the weights times their scales to BF16.
  bool fp8_as_bf16 = false;
  // Why weights cannot be in FP8, and in INT8 or blocks (INT4, types of GGUF files), here; empty
  // where they can.
  std::string no_fp8;
  std::string no_integers;
  // Dtype of the inputs of a matmul with weights of this dtype. The matmul itself quantizes the
  // inputs of weights in INT8 and in blocks.
  DType matmul_input_dtype(DType weights, DType others = DType::kF32) const {
    if (weights == DType::kF8E4M3 && f16_inputs) weights = others;
    if (is_blocks(weights)) return DType::kBF16;
    if (weights == DType::kF8E4M3 && fp8_as_bf16) return DType::kBF16;
    const bool as_weights = weights == DType::kBF16 || (weights == DType::kF16 && f16_inputs);
    return as_weights ? weights : residual_dtype;
  }
};

// Elements from row to row of a matrix with `cols` columns, for DeviceTraits::row_spacing.
constexpr std::int64_t spaced_stride(std::int64_t cols, DType dtype, std::int64_t row_spacing) {
  if (row_spacing == 0) return cols;
  const std::int64_t spaces = (bytes_of(dtype, cols) + row_spacing - 1) / row_spacing;
  return (spaces | 1) * row_spacing / static_cast<std::int64_t>(size_of(dtype));
}

// Growing KV memory and loaded backbones leave this much of the host's memory free: the system
// kills a process when it writes to mapped memory and no page is free.
inline constexpr std::int64_t kKeptFreeHostBytes = std::int64_t{64} << 20;

struct MemoryInfo {
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // that this process may still take, control groups considered

  // KV memory and backbones may take so much of the host's memory.
  std::int64_t spare_host_bytes() const {
    return free_bytes > kKeptFreeHostBytes ? free_bytes - kKeptFreeHostBytes : 0;
  }
};

struct AddressRange {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
};

enum class Queue : std::uint8_t { kCompute, kTransfer };
inline constexpr std::size_t kNumQueues = 2;

enum class CopyKind : std::uint8_t { kHostToDevice, kDeviceToHost, kDeviceToDevice };

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
  // The same at one base, of an earlier process. kUnavailable when the range is not free, or when
  // the base is none that this device reserves. A device may not support it.
  virtual Result<AddressRange> reserve_at(std::byte* base, std::size_t bytes) {
    static_cast<void>(base);
    static_cast<void>(bytes);
    return unsupported("this device cannot reserve addresses at a given base");
  }
  virtual void release(AddressRange range) = 0;

  // Backs [offset, offset + bytes) of a range. `offset` is a multiple of the granularity. `bytes`
  // is one too, except for files and shared memory, whose last page may be used in part.
  // kResourceExhausted when there is no memory, kUnsupported for a kind that this device lacks,
  // kInvalidArgument for a descriptor that does not fit; the piece is then as it was before.
  // REQUIRES: no part of the piece is backed.
  virtual Status back(AddressRange range, std::size_t offset, std::size_t bytes,
                      const Backing& backing) = 0;
  // Gives the piece's memory back to the system. The addresses stay reserved.
  // REQUIRES: nothing that is submitted and not known to have run uses the piece.
  virtual void unback(AddressRange range, std::size_t offset, std::size_t bytes) = 0;
  // Takes the memory of a piece's pages from the system now, not when each is first written; the
  // contents stay. A device whose memory does not come page by page does nothing.
  // kResourceExhausted when there is too little memory. REQUIRES: the piece is backed by kMemory.
  virtual Status populate(AddressRange range, std::size_t offset, std::size_t bytes) {
    static_cast<void>(range);
    static_cast<void>(offset);
    static_cast<void>(bytes);
    return {};
  }
  // Gives the memory of a piece's pages back until they are written again; the contents are lost.
  // A device whose memory does not come page by page does nothing. REQUIRES: as unback(); the piece
  // is backed by kMemory.
  virtual void discard(AddressRange range, std::size_t offset, std::size_t bytes) {
    static_cast<void>(range);
    static_cast<void>(offset);
    static_cast<void>(bytes);
  }
  virtual Status protect(AddressRange range, std::size_t offset, std::size_t bytes,
                         Protection protection) = 0;
  // A descriptor for the granule at `offset`, which another process may import. kUnsupported where
  // memory cannot be exported. REQUIRES: backed by kMemory.
  virtual Result<FileDescriptor> export_memory(AddressRange range, std::size_t offset) = 0;

  // Host memory for copies that run while the host goes on; see HostBuffer.
  virtual Result<std::byte*> take_host_memory(std::size_t bytes) = 0;
  virtual void give_host_memory(std::byte* memory) = 0;

  // Submits a copy. Until the copy has run, the host must neither change what it reads nor use what
  // it writes: until synchronize(), or until wait() or reached() has seen a later mark of the same
  // queue. Host memory that take_host_memory() did not give works too, but the call may then wait
  // for the copy.
  virtual Status copy(Queue queue, CopyKind kind, void* target, const void* source,
                      std::size_t bytes) = 0;
  Status copy_to_device(void* target, const void* source, std::size_t bytes) {
    return copy(Queue::kCompute, CopyKind::kHostToDevice, target, source, bytes);
  }
  Status copy_to_host(void* target, const void* source, std::size_t bytes) {
    return copy(Queue::kCompute, CopyKind::kDeviceToHost, target, source, bytes);
  }

  // Each queue has kMarks marks, which are used in turn. mark() marks what has been submitted to
  // the queue so far, under a number; the number's last mark counts. Errors as synchronize().
  static constexpr std::size_t kMarks = 8;
  virtual Status mark(Queue queue, std::size_t number) = 0;
  // Waits on the host for the mark.
  virtual Status wait(Queue queue, std::size_t number) = 0;
  // Whether the queue has reached the mark; never waits. A device without a copy engine moves
  // bounded slices of the transfer queue here, so the host must keep asking.
  virtual Result<bool> reached(Queue queue, std::size_t number) = 0;
  // Work submitted to `waiter` from now on runs after the mark of `marked`. Does not wait on the
  // host, except on a device without a copy engine. REQUIRES: the mark was made.
  virtual Status wait_in(Queue waiter, Queue marked, std::size_t number) = 0;
  // Time on the device between two marks of the compute queue that it has reached, the second no
  // earlier.
  virtual Result<Duration> time_between(std::size_t first, std::size_t second) = 0;
  // Waits for everything submitted to the queue. An error of anything that was submitted to either
  // queue is returned by the next call that can; a fault that ends the device, by all later ones.
  virtual Status synchronize(Queue queue) = 0;
  Status synchronize() {
    Status compute = synchronize(Queue::kCompute);
    Status transfer = synchronize(Queue::kTransfer);
    return compute ? transfer : compute;
  }

  virtual Ops& ops() = 0;

  // Between these two calls, ops are recorded and not run. Captures do not nest. end_listing()
  // gives the list of ops alone; end_capture() makes a graph of it.
  virtual Status begin_capture() = 0;
  virtual Result<OpList> end_listing() = 0;
  Result<std::unique_ptr<Graph>> end_capture() {
    ASSIGN_OR_RETURN(OpList ops, end_listing());
    return make_graph(std::move(ops));
  }
  // A graph of a list that need not have been captured here: one that was read from a file, or
  // whose pointers were moved (rebase.h). Runs none of the ops. REQUIRES: no capture is on.
  virtual Result<std::unique_ptr<Graph>> make_graph(OpList ops) = 0;
  // Submits a graph of this device to the compute queue; it runs with the batch that lies in device
  // memory then.
  virtual Status replay(const Graph& graph) = 0;
};

}  // namespace sluice
