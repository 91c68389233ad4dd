// Shared by the fake driver's functions: the fake they work on, its record of calls and of broken
// rules, and handles that are numbers. Included by fake_*.cpp only.
// Owner: the FakeDriver of the test. Threads: the test's.
#pragma once

#include <cstddef>
#include <string>

#include "device/cuda/driver.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice::cuda::fakes {

// The current fake. CHECKs that there is one.
FakeDriver& fake();

// Records the call; returns the failure that a test has asked for, if any.
CUresult enter(const char* function);

// Records the broken rule and fails the call.
CUresult broken(const std::string& rule);

std::size_t next_handle();

template <class Handle>
Handle handle_of(std::size_t number) {
  return reinterpret_cast<Handle>(number);  // NOLINT(performance-no-int-to-ptr)
}

template <class Handle>
std::size_t number_of(Handle handle) {
  return reinterpret_cast<std::size_t>(handle);
}

// Memory, virtual and pinned, and copies (fake_memory.cpp).
void fill_memory_functions(DriverApi& api);

}  // namespace sluice::cuda::fakes

// The name in the first step, before a version is added to it.
#define ENTER(function)                                                                   \
  if (const CUresult result_ = enter(#function); result_ != CUDA_SUCCESS) return result_; \
  static_cast<void>(0)
#define ENTER_CURRENT(function)                                                           \
  if (const CUresult result_ = enter(#function); result_ != CUDA_SUCCESS) return result_; \
  if (!fake().current) return CUDA_ERROR_INVALID_CONTEXT;                                 \
  if (fake().fault != CUDA_SUCCESS) return fake().fault
