#include "tests/support/cuda/fake_cublas_lt.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tests/support/cuda/fake_calls.h"

namespace sluice::cuda {
namespace {

FakeCublasLt* active = nullptr;

cublasStatus_t enter(const char* function) {
  CHECK(active != nullptr);
  ++active->calls[function];
  const auto found = active->fails.find(function);
  return found == active->fails.end() ? CUBLAS_STATUS_SUCCESS : found->second;
}

#define ENTER_LT(function)                                                                 \
  if (const cublasStatus_t result_ = enter(#function); result_ != CUBLAS_STATUS_SUCCESS) { \
    return result_;                                                                        \
  }                                                                                        \
  static_cast<void>(0)

cublasStatus_t broken_rule(const char* rule) {
  active->broken_rules.emplace_back(rule);
  return CUBLAS_STATUS_INVALID_VALUE;
}

// The objects that handles refer to.
struct Product {
  cublasOperation_t left = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Layout {
  cudaDataType_t type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t stride;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::map<int, std::uint32_t> alignments;
};

// An algorithm is the promises it was chosen for.
struct Promise {
  std::uint64_t workspace;
  std::uint32_t alignments[4];  // of a, b, d and the bias
};

template <class Thing, class Handle>
cublasStatus_t make(Handle* handle, Thing thing) {
  *handle = reinterpret_cast<Handle>(new Thing(thing));
  ++active->alive;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Thing, class Handle>
cublasStatus_t destroy(Handle handle) {
  delete reinterpret_cast<Thing*>(handle);
  --active->alive;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Thing, class Handle>
Thing& thing_of(Handle handle) {
  return *reinterpret_cast<Thing*>(handle);
}

template <class Handle>
const Layout& layout_of(Handle handle) {
  return *reinterpret_cast<const Layout*>(handle);
}

cublasStatus_t create(cublasLtHandle_t* handle) {
  ENTER_LT(cublasLtCreate);
  return make(handle, 0);
}
cublasStatus_t destroy_handle(cublasLtHandle_t handle) { return destroy<int>(handle); }

cublasStatus_t create_product(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                              cudaDataType_t scale) {
  ENTER_LT(cublasLtMatmulDescCreate);
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return broken_rule("sums in float32");
  return make(product, Product{});
}
cublasStatus_t destroy_product(cublasLtMatmulDesc_t product) { return destroy<Product>(product); }

cublasStatus_t set_product(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                           const void* value, std::size_t bytes) {
  ENTER_LT(cublasLtMatmulDescSetAttribute);
  Product& own = thing_of<Product>(product);
  const auto set = [&](auto& to) {
    if (bytes != sizeof(to)) return broken_rule("bytes of an attribute");
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(own.left);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(own.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(own.bias);
    default: return broken_rule("an attribute of a product");
  }
}

cublasStatus_t create_layout(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                             std::uint64_t columns, std::int64_t stride) {
  ENTER_LT(cublasLtMatrixLayoutCreate);
  if (static_cast<std::uint64_t>(stride) < rows) return broken_rule("columns overlap");
  return make(layout, Layout{type, rows, columns, stride});
}
cublasStatus_t destroy_layout(cublasLtMatrixLayout_t layout) { return destroy<Layout>(layout); }

cublasStatus_t create_preference(cublasLtMatmulPreference_t* preference) {
  ENTER_LT(cublasLtMatmulPreferenceCreate);
  return make(preference, Preference{});
}
cublasStatus_t destroy_preference(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference);
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
                              cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                              std::size_t bytes) {
  ENTER_LT(cublasLtMatmulPreferenceSetAttribute);
  Preference& own = thing_of<Preference>(preference);
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof(own.workspace)) return broken_rule("bytes of a preference");
    std::memcpy(&own.workspace, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  std::uint32_t alignment = 0;
  if (bytes != sizeof(alignment)) return broken_rule("bytes of a preference");
  std::memcpy(&alignment, value, bytes);
  own.alignments[attribute] = alignment;
  return CUBLAS_STATUS_SUCCESS;
}

std::uint32_t alignment_of_bias(const Product& product) {
  const auto bits = reinterpret_cast<std::uintptr_t>(product.bias) | 256;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

bool has_bias(const Product& product) { return product.epilogue == CUBLASLT_EPILOGUE_BIAS; }

cublasStatus_t choose_algorithm(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                cublasLtMatmulPreference_t preference, int wanted,
                                cublasLtMatmulHeuristicResult_t* results, int* count) {
  ENTER_LT(cublasLtMatmulAlgoGetHeuristic);
  *count = 0;
  if (fakes::fake().capturing) return CUBLAS_STATUS_INTERNAL_ERROR;  // as from CUDA 13.3 on
  const Layout& left = layout_of(a);
  const Layout& right = layout_of(b);
  const Layout& out = layout_of(d);
  if (c != d || wanted < 1) return broken_rule("the call");
  if (thing_of<Product>(product).left != CUBLAS_OP_T || left.rows != right.rows ||
      left.columns != out.rows || right.columns != out.columns || left.type != right.type) {
    return broken_rule("matrices that fit");
  }
  const Product& own_product = thing_of<Product>(product);
  if (!has_bias(own_product) && own_product.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    return broken_rule("an epilogue");
  }
  if (has_bias(own_product) && own_product.bias == nullptr) return broken_rule("a bias to look at");
  if (!active->has_algorithms) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Preference& own = thing_of<Preference>(preference);
  const auto alignment = [&](int attribute) {
    const auto found = own.alignments.find(attribute);
    return found == own.alignments.end() ? 256U : found->second;
  };
  const Promise promise = {
      own.workspace,
      {alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES),
       alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES),
       alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), alignment_of_bias(own_product)}};
  static_assert(sizeof(promise) <= sizeof(results->algo));
  std::memcpy(&results->algo, &promise, sizeof(promise));
  results->state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

float widened(const void* from, cudaDataType_t type, std::size_t index) {
  const auto* halves = static_cast<const std::uint16_t*>(from);
  switch (type) {
    case CUDA_R_16BF: return bf16_to_float(halves[index]);
    case CUDA_R_16F: return f16_to_float(halves[index]);
    default: return static_cast<const float*>(from)[index];
  }
}

// d = a^T b + bias, matrices by columns, a bias for each row, or none.
void multiply(const void* a, const Layout& left, const void* b, const Layout& right, void* d,
              const Layout& out, const void* bias) {
  for (std::size_t column = 0; column < out.columns; ++column) {
    for (std::size_t row = 0; row < out.rows; ++row) {
      float sum = 0.0F;
      for (std::size_t k = 0; k < left.rows; ++k) {
        sum += widened(a, left.type, row * static_cast<std::size_t>(left.stride) + k) *
               widened(b, right.type, column * static_cast<std::size_t>(right.stride) + k);
      }
      if (bias != nullptr) sum += widened(bias, out.type, row);
      const std::size_t at = column * static_cast<std::size_t>(out.stride) + row;
      switch (out.type) {
        case CUDA_R_16BF: static_cast<std::uint16_t*>(d)[at] = float_to_bf16(sum); break;
        case CUDA_R_16F: static_cast<std::uint16_t*>(d)[at] = float_to_f16(sum); break;
        default: static_cast<float*>(d)[at] = sum;
      }
    }
  }
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                      std::size_t workspace_bytes, cudaStream_t stream) {
  ENTER_LT(cublasLtMatmul);
  Promise promise = {};
  std::memcpy(&promise, algorithm, sizeof(promise));
  const Product& own = thing_of<Product>(product);
  const void* const places[4] = {a, b, d, own.bias};
  for (std::size_t i = 0; i < (has_bias(own) ? 4 : 3); ++i) {
    if (reinterpret_cast<std::uintptr_t>(places[i]) % promise.alignments[i] != 0) {
      return broken_rule("an alignment as promised");
    }
  }
  if (workspace_bytes < promise.workspace || workspace == nullptr ||
      reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) {
    return broken_rule("a workspace as promised");
  }
  if (*static_cast<const float*>(alpha) != 1.0F || *static_cast<const float*>(beta) != 0.0F ||
      c != d) {
    return broken_rule("a plain product");
  }
  // An algorithm's code is loaded when it first runs; loading it breaks a capture.
  const auto* name = reinterpret_cast<const char*>(algorithm);
  const bool loads = active->loaded.emplace(name, sizeof(*algorithm)).second;
  if (fakes::fake().capturing && (loads || active->fails_in_capture)) {
    fakes::fake().capture_broken = true;
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  FakeDriver::Launch launch;
  launch.library = [a, left = layout_of(a_layout), b, right = layout_of(b_layout), d,
                    out = layout_of(d_layout), bias = has_bias(own) ? own.bias : nullptr] {
    multiply(a, left, b, right, d, out, bias);
  };
  fakes::fake().take(stream, std::move(launch));
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

FakeCublasLt::FakeCublasLt() {
  CHECK(active == nullptr);
  active = this;
}

FakeCublasLt::~FakeCublasLt() { active = nullptr; }

CublasLtApi FakeCublasLt::api() {
  CublasLtApi api;
  api.cublasLtCreate = create;
  api.cublasLtDestroy = destroy_handle;
  api.cublasLtMatmulDescCreate = create_product;
  api.cublasLtMatmulDescDestroy = destroy_product;
  api.cublasLtMatmulDescSetAttribute = set_product;
  api.cublasLtMatrixLayoutCreate = create_layout;
  api.cublasLtMatrixLayoutDestroy = destroy_layout;
  api.cublasLtMatmulPreferenceCreate = create_preference;
  api.cublasLtMatmulPreferenceDestroy = destroy_preference;
  api.cublasLtMatmulPreferenceSetAttribute = set_preference;
  api.cublasLtMatmulAlgoGetHeuristic = choose_algorithm;
  api.cublasLtMatmul = matmul;
  return api;
}

void* FakeCublasLt::lookup(void*, const char* symbol) {
  if (active->missing == symbol) return nullptr;
  static CublasLtApi table = api();
  void* found = nullptr;
#define MATCH_LT(name) \
  if (std::strcmp(symbol, #name) == 0) found = reinterpret_cast<void*>(table.name);
  SLUICE_CUBLAS_LT_FUNCTIONS(MATCH_LT)
#undef MATCH_LT
  return found;
}

}  // namespace sluice::cuda
