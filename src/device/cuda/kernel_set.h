// KernelSet: the device code of this build, loaded into a GPU's context. All kernels are launched
// through it.
//
// Every kernel takes one parameter: a copy of its op's params struct. load() compares the size of
// each kernel's parameter with the host's struct. So a layout difference between the two compilers
// is an error at load, not a wrong result.
// Owner: the CUDA device. Threads: the engine's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/cuda/gpu.h"
#include "device/cuda/kernel_launch.h"

namespace sluice::cuda {

// A fat binary of this build: the code of one file of kernels/ for each architecture.
struct DeviceCode {
  std::string_view name;
  std::span<const std::byte> bytes;
};
std::span<const DeviceCode> device_codes();

struct KernelInfo {
  std::string_view name;        // "embed"
  const char* symbol;           // "sluice_embed"
  std::size_t code;             // index into device_codes()
  std::size_t parameter_bytes;  // of the params struct
  int shared_bytes = 0;         // dynamic, at most; more than 48 KiB must be requested
};
const KernelInfo& kernel_info(KernelId id);

class KernelSet {
 public:
  // kUnsupported, with the GPU's capability and the build option, if no code fits the GPU.
  // REQUIRES: the GPU's context is current, here and for launches, and it outlives the set.
  static Result<std::unique_ptr<KernelSet>> load(Gpu& gpu);
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  // Warns if a multiprocessor holds fewer than `wanted` blocks of `threads` threads at once, each
  // with all the shared memory that the kernel may use. The host splits work for `wanted` blocks.
  Status expect_blocks(KernelId id, int threads, int wanted) const;

  // Submits a kernel with a copy of `params`. The Gpu keeps an error. An empty shape submits
  // nothing. REQUIRES: `bytes` is the size of the kernel's struct.
  void launch(const KernelLaunch& launch, const void* params, std::size_t bytes);

 private:
  explicit KernelSet(Gpu& gpu) : gpu_(gpu) {}
  Status load_modules();
  Status load_function(const KernelInfo& info, CUfunction& function);

  Gpu& gpu_;
  std::vector<CUmodule> modules_;  // in the order of device_codes()
  std::array<CUfunction, kNumKernels> functions_ = {};
};

}  // namespace sluice::cuda
