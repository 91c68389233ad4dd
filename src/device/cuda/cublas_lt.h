// CublasLtApi: cuBLASLt as a table of functions. Like the driver it is opened with dlopen: the
// binary starts without it, and tests replace it with a fake. Types are those of the toolkit's
// header.
// Values: plain, immutable after loading; any thread.
#pragma once

#include <cublasLt.h>

#include <string>

#include "base/result.h"
#include "device/cuda/symbol_lookup.h"

namespace sluice::cuda {

// clang-format off
#define SLUICE_CUBLAS_LT_FUNCTIONS(F)                                                     \
  F(cublasLtCreate) F(cublasLtDestroy)                                                     \
  F(cublasLtMatmulDescCreate) F(cublasLtMatmulDescDestroy)                                \
  F(cublasLtMatmulDescSetAttribute)                                                       \
  F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutDestroy)                            \
  F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy)                    \
  F(cublasLtMatmulPreferenceSetAttribute)                                                 \
  F(cublasLtMatmulAlgoGetHeuristic) F(cublasLtMatmul)
// clang-format on

// NOLINTBEGIN(readability-identifier-naming): the names are the library's
struct CublasLtApi {
#define SLUICE_CUBLAS_LT_FIELD(name) decltype(&::name) name = nullptr;
  SLUICE_CUBLAS_LT_FUNCTIONS(SLUICE_CUBLAS_LT_FIELD)
#undef SLUICE_CUBLAS_LT_FIELD
};
// NOLINTEND(readability-identifier-naming)

// kUnsupported, with the function's name, if the library lacks one.
Result<CublasLtApi> load_cublas_lt(SymbolLookup lookup, void* library);

// The same from libcublasLt.so.13, which stays open until the process ends. kUnsupported, with the
// reason, if it cannot be opened.
Result<CublasLtApi> open_cublas_lt();

// The file that the functions come from: "/usr/local/cuda/lib64/libcublasLt.so.13".
std::string library_path(const CublasLtApi& api);

}  // namespace sluice::cuda
