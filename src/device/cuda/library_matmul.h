// LibraryMatmul: matrix products of many rows by cuBLASLt, with a workspace of the caller's.
// Segments whose weights lie one behind the other, as the arena places those of a matmul, are one
// call. The library chooses an algorithm once for each shape, so a shape that it knows allocates
// nothing, and its calls may be captured. A shape for which a call has failed is not tried again:
// the caller uses a built-in kernel.
//
// The library is told the number of rows when a call is made, so it takes the whole capacity: rows
// behind the real count are computed from whatever x holds, and written to rows of out that are not
// read. No value traps in a matrix product, and both buffers have rows for the capacity. Owner: the
// CUDA device. Threads: the engine's thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/result.h"
#include "device/cuda/cublas_lt.h"
#include "device/cuda/gpu.h"
#include "device/op_params.h"

namespace sluice::cuda {

class LibraryMatmul {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32}
                                                 << 20;  // as NVIDIA advises for 9.0

  // REQUIRES: the GPU's context is current, here and later; the GPU outlives it.
  static Result<std::unique_ptr<LibraryMatmul>> create(const CublasLtApi& api, Gpu& gpu);
  ~LibraryMatmul();
  LibraryMatmul(const LibraryMatmul&) = delete;
  LibraryMatmul& operator=(const LibraryMatmul&) = delete;

  // Submits the product. False where the library cannot do all of it: it has no algorithm for a
  // segment (biases of another type than out are such), a call fails, or the buffers have fewer
  // rows than the capacity; `out` may then be written in part. REQUIRES: x and weights of one
  // 16-bit type; `workspace` has kWorkspaceBytes, at a multiple of 256.
  bool submit(const MatmulParams& p, std::byte* workspace);

  // Chooses the algorithms of a product that is to be captured, and runs those that have not run
  // yet, which writes `out`. A capture forbids both: from CUDA 13.3 on the choice looks at the
  // stream's context, and the first run of an algorithm may load code.
  void prepare(const MatmulParams& p, std::byte* workspace);

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
  // How the library computes a shape.
  struct Algorithm {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t choice = {};
    cublasStatus_t answer = CUBLAS_STATUS_NOT_SUPPORTED;  // of choosing
    bool usable = false;                                  // chosen, and no call has failed
    bool has_run = false;
  };
  // One call of the library.
  struct Call {
    Shape shape;
    Algorithm* algorithm = nullptr;
    MatmulSegment segment;
    const void* x = nullptr;
    void* out = nullptr;
  };
  struct Calls {
    std::array<Call, MatmulParams::kMaxSegments> of;
    std::size_t count = 0;  // 0: the library cannot do the product
  };

  LibraryMatmul(const CublasLtApi& api, Gpu& gpu) : api_(api), gpu_(gpu) {}
  static std::string text_of(const Shape& shape);
  Calls plan(const MatmulParams& p);
  Algorithm& algorithm_for(const Shape& shape, const void* bias);
  Algorithm describe(const Shape& shape) const;
  bool set_bias(const Algorithm& algorithm, const void* bias) const;
  void choose(const Shape& shape, Algorithm& algorithm) const;
  bool run(const Call& call, std::byte* workspace);

  CublasLtApi api_;
  Gpu& gpu_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, Algorithm> algorithms_;
};

}  // namespace sluice::cuda
