// LibraryMatmul: computes matrix products of many rows with cuBLASLt, in a workspace that the
// caller provides. Segments whose weights are adjacent in memory (the arena places the weights of a
// matmul so) become one call.
// The library chooses an algorithm once for each shape. Calls of a known shape allocate nothing and
// may be captured. A shape for which a call has failed is not tried again; the caller then uses a
// built-in kernel.
//
// A call fixes the number of rows on the host, so the library computes the whole capacity. Rows
// beyond the real count are computed from any bits in x and written to rows of out that are not
// read. No value traps in a matrix product, and both buffers have rows for the capacity.
// Owner: the CUDA device. Threads: the engine's thread.
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

  // Submits the product. Returns false if the library cannot compute all of it: it has no algorithm
  // for a segment (for example because the biases have another type than out), a call fails, or the
  // buffers have fewer rows than the capacity. `out` may then be partly written. REQUIRES: x and
  // weights of one 16-bit type; `workspace` has kWorkspaceBytes, at a multiple of 256.
  bool submit(const MatmulParams& p, std::byte* workspace);

  // Prepares a product for a capture: chooses its algorithms and runs those that have not run yet,
  // which writes `out`. Both are forbidden during a capture: since CUDA 13.3 the choice reads the
  // stream's context, and the first run of an algorithm may load code.
  void prepare(const MatmulParams& p, std::byte* workspace);

 private:
  // The shape of one call in the library's column-major terms: out^T = W x^T + bias.
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
  // The library's choice for a shape.
  struct Algorithm {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t choice = {};
    cublasStatus_t answer = CUBLAS_STATUS_NOT_SUPPORTED;  // the result of the choice
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
