#include "device/cuda/library_matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <string>

#include "base/log.h"

namespace sluice::cuda {
namespace {

constexpr std::uint32_t kMostAlignment = 256;  // the library needs no more

std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | kMostAlignment;
  return std::uint32_t{1} << std::countr_zero(bits);
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16: return CUDA_R_16F;
    case DType::kBF16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

const std::byte* element(const TensorView& matrix, std::int64_t index) {
  return static_cast<const std::byte*>(matrix.data) +
         index * static_cast<std::int64_t>(size_of(matrix.dtype));
}

// Whether the rows of `next` directly follow those of `first` in memory, or both are empty.
bool continues(const TensorView& first, const TensorView& next) {
  if (first.empty() || next.empty()) return first.empty() && next.empty();
  return next.dtype == first.dtype && next.strides[0] == first.strides[0] &&
         next.data == element(first, first.dims[0] * first.strides[0]);
}

// The product's segments; neighbours in memory are joined.
struct Segments {
  std::array<MatmulSegment, MatmulParams::kMaxSegments> of;
  std::size_t count = 0;
};
Segments joined_segments(const MatmulParams& p) {
  Segments joined;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const MatmulSegment& next = p.segments[s];
    if (joined.count > 0) {
      MatmulSegment& last = joined.of[joined.count - 1];
      if (continues(last.weight, next.weight) && continues(last.bias, next.bias)) {
        last.weight.dims[0] += next.weight.dims[0];
        last.bias.dims[0] += next.bias.dims[0];
        continue;
      }
    }
    joined.of[joined.count++] = next;
  }
  return joined;
}

}  // namespace

Result<std::unique_ptr<LibraryMatmul>> LibraryMatmul::create(const CublasLtApi& api, Gpu& gpu) {
  std::unique_ptr<LibraryMatmul> made(new LibraryMatmul(api, gpu));
  if (const cublasStatus_t status = api.cublasLtCreate(&made->handle_);
      status != CUBLAS_STATUS_SUCCESS) {
    made->handle_ = nullptr;
    return unsupported(fmt::format("cuBLASLt cannot be started: status {}", int{status}));
  }
  return made;
}

LibraryMatmul::~LibraryMatmul() {
  for (const auto& [shape, algorithm] : algorithms_) {
    if (algorithm.product != nullptr) api_.cublasLtMatmulDescDestroy(algorithm.product);
    for (cublasLtMatrixLayout_t layout : {algorithm.weight, algorithm.x, algorithm.out}) {
      if (layout != nullptr) api_.cublasLtMatrixLayoutDestroy(layout);
    }
  }
  if (handle_ != nullptr) api_.cublasLtDestroy(handle_);
}

// "8x4096x14336 BF16": rows, depth, columns and the type of the inputs.
std::string LibraryMatmul::text_of(const Shape& shape) {
  std::string type = dtype_name(shape.in);
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(
      "{}x{}x{} {}{}", shape.rows, shape.depth, shape.columns, type,
      shape.bias_alignment == 0 ? "" : fmt::format(" with biases of {}", dtype_name(shape.bias)));
}

LibraryMatmul::Algorithm LibraryMatmul::describe(const Shape& shape) const {
  Algorithm algorithm;
  const auto ok = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
  const auto unsigned_of = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  // The library's matrices are column-major: a row-major [N, K] is its K x N.
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const std::uint32_t epilogue =
      shape.bias_alignment == 0 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
  // The library requires biases of out's type, one for each of its rows, which are our columns.
  algorithm.usable =
      (shape.bias_alignment == 0 || shape.bias == shape.out) &&
      ok(api_.cublasLtMatmulDescCreate(&algorithm.product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
      ok(api_.cublasLtMatmulDescSetAttribute(algorithm.product, CUBLASLT_MATMUL_DESC_TRANSA,
                                             &transposed, sizeof(transposed))) &&
      ok(api_.cublasLtMatmulDescSetAttribute(algorithm.product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                             &epilogue, sizeof(epilogue))) &&
      ok(api_.cublasLtMatrixLayoutCreate(&algorithm.weight, type_of(shape.in),
                                         unsigned_of(shape.depth), unsigned_of(shape.columns),
                                         shape.weight_stride)) &&
      ok(api_.cublasLtMatrixLayoutCreate(&algorithm.x, type_of(shape.in), unsigned_of(shape.depth),
                                         unsigned_of(shape.rows), shape.x_stride)) &&
      ok(api_.cublasLtMatrixLayoutCreate(&algorithm.out, type_of(shape.out),
                                         unsigned_of(shape.columns), unsigned_of(shape.rows),
                                         shape.out_stride));
  return algorithm;
}

bool LibraryMatmul::set_bias(const Algorithm& algorithm, const void* bias) const {
  return bias == nullptr ||
         api_.cublasLtMatmulDescSetAttribute(algorithm.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                             &bias, sizeof(bias)) == CUBLAS_STATUS_SUCCESS;
}

void LibraryMatmul::choose(const Shape& shape, Algorithm& algorithm) const {
  cublasLtMatmulPreference_t preference = nullptr;
  if (api_.cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return;
  const std::uint64_t workspace = kWorkspaceBytes;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                                     sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  // The library assumes an alignment of 256 unless the preference says otherwise.
  const bool told = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weight_alignment) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  cublasLtMatmulHeuristicResult_t best = {};
  int count = 0;
  if (told) {
    algorithm.answer = api_.cublasLtMatmulAlgoGetHeuristic(
        handle_, algorithm.product, algorithm.weight, algorithm.x, algorithm.out, algorithm.out,
        preference, 1, &best, &count);
  }
  algorithm.usable = algorithm.answer == CUBLAS_STATUS_SUCCESS && count == 1 &&
                     best.state == CUBLAS_STATUS_SUCCESS;
  algorithm.choice = best.algo;
  api_.cublasLtMatmulPreferenceDestroy(preference);
}

LibraryMatmul::Algorithm& LibraryMatmul::algorithm_for(const Shape& shape, const void* bias) {
  const auto known = algorithms_.find(shape);
  if (known != algorithms_.end()) return known->second;
  Algorithm algorithm = describe(shape);
  // The library learns a bias's alignment from its address.
  algorithm.usable = algorithm.usable && set_bias(algorithm, bias);
  if (algorithm.usable) choose(shape, algorithm);
  if (!algorithm.usable) {
    log_info(fmt::format(
        "{}: cuBLASLt has no algorithm for {} (status {}); using the built-in kernel (slower)",
        gpu_.name(), text_of(shape), int{algorithm.answer}));
  }
  return algorithms_.emplace(shape, algorithm).first->second;
}

LibraryMatmul::Calls LibraryMatmul::plan(const MatmulParams& p) {
  Calls calls;
  const std::int64_t rows = p.rows.capacity;
  if (p.x.dims[0] < rows || p.out.dims[0] < rows) return calls;
  const Segments segments = joined_segments(p);
  std::int64_t column = 0;
  for (std::size_t s = 0; s < segments.count; ++s) {
    Call& call = calls.of[s];
    call.segment = segments.of[s];
    call.x = p.x.data;
    call.out = const_cast<std::byte*>(element(p.out, column));
    const TensorView& weight = call.segment.weight;
    const TensorView& bias = call.segment.bias;
    Shape& shape = call.shape;
    shape.in = p.x.dtype;
    shape.out = p.out.dtype;
    if (!bias.empty()) {
      shape.bias = bias.dtype;
      shape.bias_alignment = alignment_of(bias.data);
    }
    shape.columns = weight.dims[0];
    shape.rows = rows;
    shape.depth = weight.dims[1];
    shape.weight_stride = weight.strides[0];
    shape.x_stride = p.x.strides[0];
    shape.out_stride = p.out.strides[0];
    shape.weight_alignment = alignment_of(weight.data);
    shape.x_alignment = alignment_of(p.x.data);
    shape.out_alignment = alignment_of(call.out);
    call.algorithm = &algorithm_for(shape, bias.data);
    if (!call.algorithm->usable) return calls;
    column += shape.columns;
  }
  calls.count = segments.count;
  return calls;
}

// The driver's next call reports a fault of the GPU; any other failure comes from the library.
bool LibraryMatmul::run(const Call& call, std::byte* workspace) {
  Algorithm& algorithm = *call.algorithm;
  const float one = 1.0F;
  const float zero = 0.0F;
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  if (set_bias(algorithm, call.segment.bias.data)) {
    status = api_.cublasLtMatmul(handle_, algorithm.product, &one, call.segment.weight.data,
                                 algorithm.weight, call.x, algorithm.x, &zero, call.out,
                                 algorithm.out, call.out, algorithm.out, &algorithm.choice,
                                 workspace, kWorkspaceBytes, gpu_.stream());
  }
  algorithm.has_run = true;
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  algorithm.usable = false;
  log_warning(fmt::format(
      "{}: cuBLASLt fails for {} (status {}); using the built-in kernel (slower) from now on",
      gpu_.name(), text_of(call.shape), int{status}));
  return false;
}

bool LibraryMatmul::submit(const MatmulParams& p, std::byte* workspace) {
  const Calls calls = plan(p);
  for (std::size_t s = 0; s < calls.count; ++s) {
    if (!run(calls.of[s], workspace)) return false;
  }
  return calls.count > 0;
}

void LibraryMatmul::prepare(const MatmulParams& p, std::byte* workspace) {
  const Calls calls = plan(p);
  for (std::size_t s = 0; s < calls.count; ++s) {
    if (!calls.of[s].algorithm->has_run) static_cast<void>(run(calls.of[s], workspace));
  }
}

}  // namespace sluice::cuda
