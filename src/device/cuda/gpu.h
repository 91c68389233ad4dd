// Gpu: one GPU's primary context, a stream for each queue, and the errors of submitted work. The
// rest of the backend (memory, kernels, ops) borrows it.
//
// Errors are of two kinds. A fault (is_sticky: a kernel's bad address, a memory error) destroys the
// context: every later call returns it. Any other failure leaves the context intact (a launch that
// the driver refused, no memory for a graph): take_error() returns it once. Work submitted before
// that call is dropped, because its inputs may be missing.
//
// Owner: the CUDA device. Threads: one at a time; memory_info() may be called from any thread.
// Every entry point makes the context current first, because the current context belongs to the
// calling thread.
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
  int shared_bytes = 0;  // at most, for a block of threads
  std::int64_t memory_bytes = 0;
};

// "NVIDIA H200, capability 9.0, 132 multiprocessors, 139.8 GiB".
std::string describe(const GpuInfo& info);

// kInvalidArgument, with the number of GPUs, for an index beyond the last one.
Result<GpuInfo> inspect_gpu(const DriverApi& api, int index);

class Gpu {
 public:
  // kUnsupported if the GPU lacks virtual memory management.
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

  // Converts the result of a call whose error the caller handles (such as an allocation). Keeps
  // faults.
  Status check(CUresult result, std::string_view what);
  // Records the result of a submission to a stream. Keeps an error for take_error().
  void submitted(CUresult result, std::string_view what);
  // Keeps the error of an op that cannot be submitted at all for take_error().
  void refuse(Error error);
  // Whether new submissions run: there is no fault and no error that was not taken.
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

  // Waits for a stream, or for both, also after an error. The error of earlier work names the last
  // submission. drain() waits for both; the next call that returns a Status reports errors.
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
  // Records the result of a call that waits; its error comes from earlier work.
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
