// LibraryMatmul: matrix products of many rows by cuBLASLt, with a workspace of our own. Segments
// whose weights lie one behind the other, as the arena places those of a matmul, are one call.
// Which algorithm is asked once for each shape, so nothing is allocated for one that has been seen;
// calls may be captured.
//
// The library is told the number of rows when a call is made, so it takes the whole capacity: rows
// behind the real count are computed from whatever lies in x, and written to out, where nobody
// reads them. No value traps in a matrix product, and both buffers have rows for the capacity
// (suits()). Owner: the CUDA device. Threads: the engine's thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "base/result.h"
#include "device/cuda/cublas_lt.h"
#include "device/cuda/gpu.h"
#include "device/cuda/virtual_memory.h"
#include "device/op_params.h"

namespace sluice::cuda {

class LibraryMatmul {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // NVIDIA's word for 9.0

  // REQUIRES: the GPU's context is current, here and later; GPU and memory outlive it.
  static Result<std::unique_ptr<LibraryMatmul>> create(const CublasLtApi& api, Gpu& gpu,
                                                       VirtualMemory& memory);
  ~LibraryMatmul();
  LibraryMatmul(const LibraryMatmul&) = delete;
  LibraryMatmul& operator=(const LibraryMatmul&) = delete;

  // Submits the product, or nothing: false, where the library has no way for a segment (such are
  // biases of another type than out), or the product has fewer rows in its buffers than its
  // capacity. A failure is kept by the GPU. REQUIRES: x and weights of one 16-bit type.
  bool submit(const MatmulParams& p);

  // Asks how, if that is not known: before a capture. Within one the library cannot tell (from CUDA
  // 13.3 on it looks at the stream's context then, which a capture forbids).
  void prepare(const MatmulParams& p) { static_cast<void>(find_ways(p)); }

 private:
  // One call, as the library sees it: columns first, out transposed = W x^T + bias.
  struct Shape {
    DType in = DType::kBF16;
    DType out = DType::kF32;
    DType bias = DType::kF32;
    std::uint32_t bias_alignment = 0;  // 0: no biases
    std::int64_t columns = 0;
    std::int64_t rows = 0;
    std::int64_t depth = 0;
    std::int64_t weight_stride = 0;
    std::int64_t x_stride = 0;
    std::int64_t out_stride = 0;
    std::uint32_t weight_alignment = 0;
    std::uint32_t x_alignment = 0;
    std::uint32_t out_alignment = 0;
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  struct Way {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    cublasStatus_t answer = CUBLAS_STATUS_NOT_SUPPORTED;  // when asked for the algorithm
    bool found = false;
  };

  LibraryMatmul(const CublasLtApi& api, Gpu& gpu, VirtualMemory& memory)
      : api_(api), gpu_(gpu), memory_(memory) {}
  struct Ways {
    std::array<const Way*, MatmulParams::kMaxSegments> of = {};  // of each call
    bool all_found = false;
  };
  Ways find_ways(const MatmulParams& p);
  Way& way_for(const Shape& shape, const void* bias);
  Way describe(const Shape& shape) const;
  bool set_bias(const Way& way, const void* bias) const;
  void choose(const Shape& shape, Way& way) const;
  bool run(const Way& way, const MatmulSegment& segment, const void* x, void* out);

  CublasLtApi api_;
  Gpu& gpu_;
  VirtualMemory& memory_;
  cublasLtHandle_t handle_ = nullptr;
  AddressRange workspace_;
  std::map<Shape, Way> ways_;
};

}  // namespace sluice::cuda
