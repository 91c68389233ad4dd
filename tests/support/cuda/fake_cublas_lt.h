// FakeCublasLt: cuBLASLt as plain loops that record their calls, for machines without a GPU. A call
// that breaks a rule fails. The rules: alignments and workspace as promised, only existing handles
// destroyed, the expected layouts.
// Owner: a test, which has a FakeDriver too; one at a time. Threads: the test's.
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
  bool fails_in_capture = false;                // fails products, which breaks the capture
  bool has_algorithms = true;

  // Recorded.
  std::map<std::string, int> calls;
  std::set<std::string> loaded;  // algorithms that have run, so that their code is loaded
  int alive = 0;                 // handles, descriptions, layouts, preferences
  std::vector<std::string> broken_rules;
};

}  // namespace sluice::cuda
