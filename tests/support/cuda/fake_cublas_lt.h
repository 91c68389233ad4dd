// FakeCublasLt: cuBLASLt made of books and plain loops, beside a FakeDriver, for machines without a
// GPU. It holds the rules that our calls must keep (alignments and workspace as promised, things
// destroyed that were made, the layout we mean) and says so by failing the call.
// Owner: a test, which has a FakeDriver too. Threads: the test's. One at a time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "device/cuda/cublas_lt.h"

namespace sluice::cuda {

class FakeCublasLt {
 public:
  FakeCublasLt();
  ~FakeCublasLt();
  FakeCublasLt(const FakeCublasLt&) = delete;
  FakeCublasLt& operator=(const FakeCublasLt&) = delete;

  // The table; all functions work on this fake.
  static CublasLtApi api();
  // For load_cublas_lt: finds the table's functions, but `missing`.
  static void* lookup(void* library, const char* symbol);

  // Settings.
  std::string missing;
  std::map<std::string, cublasStatus_t> fails;  // by function: the result of its calls
  bool fails_in_capture = false;                // products, which breaks the capture
  bool has_algorithms = true;

  // Books.
  std::map<std::string, int> calls;
  std::set<std::string> loaded;  // algorithms whose code is loaded, since they have run
  int alive = 0;                 // handles, descriptions, layouts, preferences
  std::vector<std::string> broken_rules;
};

}  // namespace sluice::cuda
