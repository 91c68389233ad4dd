// Gpu: one GPU's primary context, a stream for each queue, and the errors of what is submitted to
// them. Everything else of the backend (memory, kernels, ops) borrows it.
//
// Errors are of two kinds. A fault (is_sticky: a kernel's bad address, a memory error) ends the
// context: it is kept, and every later call returns it. Any other failure leaves the context whole
// (a launch that the driver refused, no memory for a graph): take_error() returns it once, and what
// is submitted until then is dropped, since it would compute from results that are not there.
//
// Owner: the CUDA device. Threads: one at a time; memory_info() may be called from any thread.
// Every entry point makes the context current first, since that is a property of the calling
// thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/cuda/driver.h"
#include "device/device.h"

namespace sluice::cuda {

struct GpuInfo {
  std::string name;  // "NVIDIA H200"
  int major = 0;     // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;  // of a block of threads at most
  std::int64_t memory_bytes = 0;
};

// "NVIDIA H200, capability 9.0, 132 multiprocessors, 139.8 GiB".
std::string describe(const GpuInfo& info);

// kInvalidArgument, with how many there are, for an index beyond them.
Result<GpuInfo> inspect_gpu(const DriverApi& api, int index);

class Gpu {
 public:
  // kUnsupported where the GPU cannot do what the backend needs (virtual memory).
  static Result<std::unique_ptr<Gpu>> open(const DriverApi& api, int index);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const DriverApi& api() const { return api_; }
  const std::string& name() const { return name_; }  // "cuda:0"
  const GpuInfo& info() const { return info_; }
  CUdevice device() const { return device_; }
  CUstream stream(Queue queue = Queue::kCompute) const { return of(queue).stream; }

  Status make_current() const;
  Result<MemoryInfo> memory_info() const;

  // Names the error of a call that its caller handles (taking memory, say). Keeps faults.
  Status check(CUresult result, std::string_view what);
  // Takes the result of submitting something to a stream. Errors are kept for take_error().
  void submitted(CUresult result, std::string_view what);
  // Keeps an error for take_error(): an op that cannot be submitted at all.
  void refuse(Error error);
  // Whether what is submitted now runs: there is no fault and no error that was not taken.
  bool ready() const { return fault_.has_value() && failure_.has_value(); }
  // Whether the error that take_error() will return comes from refuse(): a second attempt would
  // fail in the same way.
  bool refused() const { return refused_; }
  // The fault, if there is one; else the first failure since the last call.
  Status take_error();
  // The fault, if there is one.
  Status health() const { return fault_; }

  // As in Device.
  Status mark(Queue queue, std::size_t number);
  Status wait(Queue queue, std::size_t number);
  Result<bool> reached(Queue queue, std::size_t number);
  Status wait_in(Queue waiter, Queue marked, std::size_t number);
  Result<Duration> time_between(std::size_t first, std::size_t second);

  // Work submitted to the transfer queue from now on runs after the compute queue's work so far.
  void order_transfers_after_compute();

  // Waits for a stream, or for both, also after an error. Names an error of what ran by what was
  // submitted last. drain() waits for both and leaves errors to the next call that returns them.
  Status synchronize(Queue queue);
  Status synchronize();
  void drain();

 private:
  struct Lane {
    CUstream stream = nullptr;
    std::array<CUevent, Device::kMarks> marks = {};
  };
  Gpu(const DriverApi& api, int index, CUdevice device, GpuInfo info);
  Lane& of(Queue queue) { return lanes_[static_cast<std::size_t>(queue)]; }
  const Lane& of(Queue queue) const { return lanes_[static_cast<std::size_t>(queue)]; }
  Status open_lane(Lane& lane);
  void keep(CUresult result, Error error);
  // Takes the result of a call that waits: an error is one of what ran.
  void waited(CUresult result);

  DriverApi api_;
  std::string name_;
  CUdevice device_ = 0;
  GpuInfo info_;
  CUcontext context_ = nullptr;
  std::array<Lane, kNumQueues> lanes_;
  CUevent ordered_ = nullptr;  // of order_transfers_after_compute()
  Status fault_;
  Status failure_;  // until it is taken
  bool refused_ = false;
  std::string_view last_submitted_ = "nothing";
};

}  // namespace sluice::cuda
