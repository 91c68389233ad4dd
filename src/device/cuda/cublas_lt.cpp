#include "device/cuda/cublas_lt.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace sluice::cuda {
namespace {

constexpr const char* kCublasLt = "libcublasLt.so.13";

}  // namespace

Result<CublasLtApi> load_cublas_lt(SymbolLookup lookup, void* library) {
  CublasLtApi api;
  const char* missing = nullptr;
#define SLUICE_CUBLAS_LT_FIND(name)                                           \
  if (!find_symbol(api.name, lookup, library, #name) && missing == nullptr) { \
    missing = #name;                                                          \
  }
  SLUICE_CUBLAS_LT_FUNCTIONS(SLUICE_CUBLAS_LT_FIND)
#undef SLUICE_CUBLAS_LT_FIND
  if (missing != nullptr) return unsupported(fmt::format("{} has no {}", kCublasLt, missing));
  return api;
}

Result<CublasLtApi> open_cublas_lt() {
  void* library = dlopen(kCublasLt, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return unsupported(reason == nullptr ? kCublasLt : reason);
  }
  return load_cublas_lt([](void* from, const char* symbol) { return dlsym(from, symbol); },
                        library);
}

std::string library_path(const CublasLtApi& api) {
  Dl_info info = {};
  const bool known = dladdr(reinterpret_cast<const void*>(api.cublasLtCreate), &info) != 0;
  return known && info.dli_fname != nullptr ? info.dli_fname : kCublasLt;
}

}  // namespace sluice::cuda
