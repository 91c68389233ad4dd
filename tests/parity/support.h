// Shared by the parity tests: the devices under test, memory on them, and numbers to fill it with.
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "device/device.h"
#include "tensor/tensor_view.h"

namespace sluice::parity {

// A kind of device to test: every instruction set of the CPU, CUDA, and CUDA's kernels on the host.
struct DeviceCase {
  std::string name;  // "cpu_avx2", ..., "cuda"
  // `deterministic`: rows are bitwise independent of the batch, where that is a choice (on the CPU
  // they always are).
  Result<std::unique_ptr<Device>> (*make)(int threads, bool deterministic);
  // Attention with a 16-bit KV cache rounds queries and weights to its dtype.
  bool tensor_cores = false;
  // Long random tests take a few seeds only.
  bool slow = false;
};
void PrintTo(const DeviceCase& device, std::ostream* os);

// All of them, also those this machine lacks: their tests show as skipped.
std::vector<DeviceCase> available_devices();
std::string case_name(const testing::TestParamInfo<DeviceCase>& info);
// Those on the CPU. CUDA has no kernels for INT8 and blocks, and refuses them before loading.
std::vector<DeviceCase> available_cpus();

// A range of device memory, handed out piece by piece. All of it starts as NaN in every float
// dtype, and so does a guard after each piece: what must not be read would spoil a result, and
// what must not be written is found by check_guards().
class DeviceMemory {
 public:
  explicit DeviceMemory(Device& device, std::size_t bytes = std::size_t{32} << 20);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // `misalignment` bytes after a multiple of 64.
  void* take(std::size_t bytes, std::size_t misalignment = 0);
  template <class T>
  T* put(std::span<const T> values) {
    T* place = static_cast<T*>(take(values.size_bytes()));
    upload(place, std::as_bytes(values));
    return place;
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    return put(std::span<const T>(values));
  }
  void upload(void* target, std::span<const std::byte> bytes);
  std::vector<std::byte> download(const void* source, std::size_t bytes);

  // Floats rounded to `dtype`, as a vector or matrix with `row_stride` elements between rows.
  TensorView put_vector(const std::vector<float>& values, DType dtype);
  TensorView put_matrix(const std::vector<float>& values, std::int64_t rows, std::int64_t cols,
                        DType dtype, std::int64_t row_stride = 0, std::size_t misalignment = 0);
  // NaN everywhere.
  TensorView take_matrix(std::int64_t rows, std::int64_t cols, DType dtype,
                         std::int64_t row_stride = 0);
  // Row by row, without what lies between rows.
  std::vector<float> read_matrix(const TensorView& view);
  // A count for RowCount::value.
  const std::int32_t* put_count(std::int32_t count) {
    return put(std::vector<std::int32_t>{count});
  }

  // Fails the test where a guard has changed.
  void check_guards();
  // Takes everything back and poisons it again.
  void clear();

 private:
  Device& device_;
  AddressRange range_;
  std::size_t usable_ = 0;  // bytes of the range; the library's workspace follows
  std::size_t used_ = 0;
  std::vector<std::size_t> guards_;  // offsets
};

// A product of x [rows, depth] with the weights of some segments.
struct MatmulShape {
  std::int64_t rows;
  std::int64_t depth;
  std::vector<std::int64_t> cols;  // of each segment
};

// Values that `dtype` can represent.
std::vector<float> round_to(DType dtype, std::vector<float> values);
// About normal, mean 0, deviation `scale`.
std::vector<float> random_floats(SplitMix64& rng, std::size_t count, float scale = 1.0F);

// Makes the device or skips the test, saying why. Sets up memory.
class DeviceTest : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override;
  Ops& ops() { return device_->ops(); }
  // As download, after everything submitted has run.
  std::vector<float> result(const TensorView& view);
  // The product of x with all segments. The number of rows is read from memory, and there may be
  // one more.
  std::vector<float> multiply(const TensorView& x, const std::vector<MatmulSegment>& segments);
  // gated_matmul has the bits of matmul and gated_activation.
  void check_gated_bits(const GatedMatmulParams& p, const std::string& what);

  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> memory_;
};

// "|got - want| <= tolerance" for each element; the first few misses are printed.
void expect_close(const std::vector<float>& got, const std::vector<double>& want,
                  const std::vector<double>& tolerance, const std::string& what);
// Bit by bit.
void expect_same(std::span<const float> got, std::span<const float> want, const std::string& what);
// Half a unit in the last place of `dtype` at x, for results that are rounded to it.
double rounding_error(DType dtype, double x);

}  // namespace sluice::parity
