#include "device/cuda/library_matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/log.h"

namespace sluice::cuda {
namespace {

constexpr std::uint32_t kMostAlignment = 256;  // the library asks for no more

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

// Whether the rows of `next` are those behind the last of `first`; or neither has any.
bool continues(const TensorView& first, const TensorView& next) {
  if (first.empty() || next.empty()) return first.empty() && next.empty();
  return next.dtype == first.dtype && next.strides[0] == first.strides[0] &&
         next.data == element(first, first.dims[0] * first.strides[0]);
}

// The product's segments, those that lie one behind the other as one.
struct Calls {
  std::array<MatmulSegment, MatmulParams::kMaxSegments> segments;
  std::size_t count = 0;
};
Calls calls_of(const MatmulParams& p) {
  Calls calls;
  for (std::int32_t s = 0; s < p.num_segments; ++s) {
    const MatmulSegment& next = p.segments[s];
    if (calls.count > 0) {
      MatmulSegment& last = calls.segments[calls.count - 1];
      if (continues(last.weight, next.weight) && continues(last.bias, next.bias)) {
        last.weight.dims[0] += next.weight.dims[0];
        last.bias.dims[0] += next.bias.dims[0];
        continue;
      }
    }
    calls.segments[calls.count++] = next;
  }
  return calls;
}

}  // namespace

Result<std::unique_ptr<LibraryMatmul>> LibraryMatmul::create(const CublasLtApi& api, Gpu& gpu,
                                                             VirtualMemory& memory) {
  std::unique_ptr<LibraryMatmul> made(new LibraryMatmul(api, gpu, memory));
  if (const cublasStatus_t status = api.cublasLtCreate(&made->handle_);
      status != CUBLAS_STATUS_SUCCESS) {
    made->handle_ = nullptr;
    return unsupported(fmt::format("cuBLASLt cannot be started: status {}", int{status}));
  }
  ASSIGN_OR_RETURN(const AddressRange range, memory.reserve(kWorkspaceBytes));
  if (auto backed = memory.back(range, 0, range.bytes); !backed) {
    memory.release(range);
    return std::move(backed).error();
  }
  made->workspace_ = range;
  return made;
}

LibraryMatmul::~LibraryMatmul() {
  for (const auto& [shape, way] : ways_) {
    if (way.product != nullptr) api_.cublasLtMatmulDescDestroy(way.product);
    for (cublasLtMatrixLayout_t layout : {way.weight, way.x, way.out}) {
      if (layout != nullptr) api_.cublasLtMatrixLayoutDestroy(layout);
    }
  }
  if (handle_ != nullptr) api_.cublasLtDestroy(handle_);
  if (workspace_.base == nullptr) return;
  memory_.unback(workspace_, 0, workspace_.bytes);
  memory_.release(workspace_);
}

LibraryMatmul::Way LibraryMatmul::describe(const Shape& shape) const {
  Way way;
  const auto ok = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
  const auto unsigned_of = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  // Matrices lie by columns for the library: a row-major [N, K] is its K x N.
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const std::uint32_t epilogue =
      shape.bias_alignment == 0 ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
  // It takes biases of the type of out, one for each of its rows, which are our columns.
  way.found =
      (shape.bias_alignment == 0 || shape.bias == shape.out) &&
      ok(api_.cublasLtMatmulDescCreate(&way.product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
      ok(api_.cublasLtMatmulDescSetAttribute(way.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                             sizeof(transposed))) &&
      ok(api_.cublasLtMatmulDescSetAttribute(way.product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                             sizeof(epilogue))) &&
      ok(api_.cublasLtMatrixLayoutCreate(&way.weight, type_of(shape.in), unsigned_of(shape.depth),
                                         unsigned_of(shape.columns), shape.weight_stride)) &&
      ok(api_.cublasLtMatrixLayoutCreate(&way.x, type_of(shape.in), unsigned_of(shape.depth),
                                         unsigned_of(shape.rows), shape.x_stride)) &&
      ok(api_.cublasLtMatrixLayoutCreate(&way.out, type_of(shape.out), unsigned_of(shape.columns),
                                         unsigned_of(shape.rows), shape.out_stride));
  return way;
}

bool LibraryMatmul::set_bias(const Way& way, const void* bias) const {
  return bias == nullptr ||
         api_.cublasLtMatmulDescSetAttribute(way.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                             sizeof(bias)) == CUBLAS_STATUS_SUCCESS;
}

void LibraryMatmul::choose(const Shape& shape, Way& way) const {
  cublasLtMatmulPreference_t preference = nullptr;
  if (api_.cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return;
  const std::uint64_t workspace = kWorkspaceBytes;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return api_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                                     sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  // What it is not told, it takes for 256.
  const bool told = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.weight_alignment) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.x_alignment) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.out_alignment) &&
                    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out_alignment);
  cublasLtMatmulHeuristicResult_t best = {};
  int count = 0;
  if (told) {
    way.answer = api_.cublasLtMatmulAlgoGetHeuristic(
        handle_, way.product, way.weight, way.x, way.out, way.out, preference, 1, &best, &count);
  }
  way.found =
      way.answer == CUBLAS_STATUS_SUCCESS && count == 1 && best.state == CUBLAS_STATUS_SUCCESS;
  way.algorithm = best.algo;
  api_.cublasLtMatmulPreferenceDestroy(preference);
}

LibraryMatmul::Way& LibraryMatmul::way_for(const Shape& shape, const void* bias) {
  const auto known = ways_.find(shape);
  if (known != ways_.end()) return known->second;
  Way way = describe(shape);
  // How a bias is aligned it learns from its address, any of the kind.
  way.found = way.found && set_bias(way, bias);
  if (way.found) choose(shape, way);
  if (!way.found) {
    log_info(fmt::format(
        "{}: cuBLASLt has no way for {} x {} x {}{} (status {}): an own kernel does it",
        gpu_.name(), shape.rows, shape.depth, shape.columns,
        bias == nullptr ? "" : fmt::format(" with biases of {}", dtype_name(shape.bias)),
        int{way.answer}));
  }
  return ways_.emplace(shape, way).first->second;
}

bool LibraryMatmul::run(const Way& way, const MatmulSegment& segment, const void* x, void* out) {
  const float one = 1.0F;
  const float zero = 0.0F;
  cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
  if (set_bias(way, segment.bias.data)) {
    status = api_.cublasLtMatmul(handle_, way.product, &one, segment.weight.data, way.weight, x,
                                 way.x, &zero, out, way.out, out, way.out, &way.algorithm,
                                 workspace_.base, kWorkspaceBytes, gpu_.stream());
  }
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  gpu_.refuse(unavailable(fmt::format("matmul: cuBLASLt fails with status {}", int{status})));
  return false;
}

LibraryMatmul::Ways LibraryMatmul::find_ways(const MatmulParams& p) {
  Ways ways;
  const std::int64_t rows = p.rows.capacity;
  if (p.x.dims[0] < rows || p.out.dims[0] < rows) return ways;
  const Calls calls = calls_of(p);
  std::int64_t column = 0;
  for (std::size_t s = 0; s < calls.count; ++s) {
    const TensorView& weight = calls.segments[s].weight;
    const TensorView& bias = calls.segments[s].bias;
    Shape shape;
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
    shape.out_alignment = alignment_of(element(p.out, column));
    ways.of[s] = &way_for(shape, bias.data);
    if (!ways.of[s]->found) return ways;
    column += shape.columns;
  }
  ways.all_found = true;
  return ways;
}

bool LibraryMatmul::submit(const MatmulParams& p) {
  const Ways ways = find_ways(p);
  if (!ways.all_found) return false;
  const Calls calls = calls_of(p);
  std::int64_t column = 0;
  for (std::size_t s = 0; s < calls.count; ++s) {
    auto* out = const_cast<std::byte*>(element(p.out, column));
    if (!run(*ways.of[s], calls.segments[s], p.x.data, out)) break;
    column += calls.segments[s].weight.dims[0];
  }
  return true;
}

}  // namespace sluice::cuda
