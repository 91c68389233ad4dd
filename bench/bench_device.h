// A device to measure on: opened by name, memory filled without moving much, ops timed as graphs.
// Owner: the tables of ops_bench. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "device/device.h"

namespace sluice::bench {

// "cpu" with a thread for each core, or "cuda:N".
Result<std::unique_ptr<Device>> open_device(std::string_view name);

// Ends the program where there is an error, with its message.
void must(const Status& status);
template <class T>
T must(Result<T> result) {
  must(result ? Status() : Status(tl::unexpect, result.error()));
  return *std::move(result);
}

// Memory of a device until the end of a measurement. It holds small numbers in every 16-bit float
// format.
class Memory {
 public:
  Memory(Device& device, std::int64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // At a multiple of 256.
  std::byte* take(std::int64_t bytes);
  std::byte* put_bytes(std::span<const std::byte> bytes);
  template <class T>
  T* put(const std::vector<T>& values) {
    return reinterpret_cast<T*>(put_bytes(std::as_bytes(std::span(values))));
  }
  std::byte* take_numbers(std::int64_t bytes);
  TensorView matrix(DType dtype, std::int64_t rows, std::int64_t cols);

 private:
  Device& device_;
  AddressRange range_;
  std::size_t used_ = 0;
};

// The ops that `submit` submits, captured, so that launching them costs nothing.
std::unique_ptr<Graph> capture(Device& device, FunctionRef<void()> submit);
// Seconds that `times` replays of a graph take.
double time_replays(Device& device, const Graph& graph, int times);
// Seconds that one of `count` ops takes.
double time_ops(Device& device, int count, FunctionRef<void(int)> op);

}  // namespace sluice::bench
