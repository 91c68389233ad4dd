// Gpu: one GPU's primary context, its compute stream, and the first error of anything submitted to
// it. Everything else of the backend (memory, staging, kernels, ops) borrows it.
// Owner: the CUDA device. Threads: one at a time but for memory_info(); every entry point makes the
// context current first, since that is a property of the calling thread.
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
  CUstream stream() const { return stream_; }

  Status make_current() const;
  Result<MemoryInfo> memory_info() const;

  // Of a call that may fail and leave the device whole (memory, say): the error, named. A sticky
  // one is kept as well.
  Status check(CUresult result, std::string_view what);
  // Of something submitted to the stream: any failure is kept, and later calls return it.
  void submitted(CUresult result, std::string_view what);
  // Something that was asked for cannot be submitted at all; kept in the same way.
  void refuse(Error error);
  // The first error kept, for ever.
  Status health() const { return health_; }

  // Device::mark, Device::wait and Device::time_between.
  Status mark(std::size_t number);
  Status wait(std::size_t number);
  Result<Duration> time_between(std::size_t first, std::size_t second);

  // Waits for the stream, also after an error, and returns the first error kept. One of what ran is
  // named by what was submitted last.
  Status synchronize();

 private:
  Gpu(const DriverApi& api, int index, CUdevice device, GpuInfo info);
  void keep(Error error);
  // Of a call that waits: an error is one of what ran.
  Status waited(CUresult result);

  DriverApi api_;
  std::string name_;
  CUdevice device_ = 0;
  GpuInfo info_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUevent, Device::kMarks> marks_ = {};
  Status health_;
  std::string_view last_submitted_ = "nothing";
};

}  // namespace sluice::cuda
