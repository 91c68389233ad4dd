#include "tests/parity/support.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/reference/elements.h"
#include "device/cuda_device.h"
#include "tests/parity/emulated_cuda.h"
#include "tests/support/tiles/tile_emulator.h"

namespace sluice::parity {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kAlignment = 64;

template <CpuIsa isa>
Result<std::unique_ptr<Device>> make_cpu(int threads, bool) {
  if constexpr (isa == CpuIsa::kAmx) test::tested_cpu_isas();  // may have to be emulated
  return make_cpu_device({.threads = threads, .isa = isa});
}

Result<std::unique_ptr<Device>> make_cuda(int, bool deterministic) {
  // The driver makes a context for the first device and takes it down with the last: one that stays
  // spares all tests but the first the time for it, which their time limit on a GPU counts.
  [[maybe_unused]] static const Device* const first =
      make_cuda_device(0, {.deterministic = true}).value_or(nullptr).release();
  auto device = make_cuda_device(0, {.deterministic = deterministic});
  if (!device) return unsupported("no CUDA device: " + device.error().message);
  return device;
}

// Nothing can be tested without it: the reason is what counts then.
template <class T>
T must(Result<T> result) {
  if (!result) std::fprintf(stderr, "%s\n", result.error().message.c_str());
  CHECK(result.has_value());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

void PrintTo(const DeviceCase& device, std::ostream* os) { *os << device.name; }

std::vector<DeviceCase> available_devices() {
  std::vector<DeviceCase> devices = {{"cpu_reference", make_cpu<CpuIsa::kReference>},
                                     {"cpu_avx2", make_cpu<CpuIsa::kAvx2>},
                                     {"cpu_avx2_vnni", make_cpu<CpuIsa::kAvx2Vnni>},
                                     {"cpu_avx512", make_cpu<CpuIsa::kAvx512>},
                                     {"cpu_avx512_vnni", make_cpu<CpuIsa::kAvx512Vnni>},
                                     {"cpu_avx512_bf16", make_cpu<CpuIsa::kAvx512Bf16>, true},
                                     {"cpu_avx512_bf16_fma", make_cpu<CpuIsa::kAvx512Bf16Fma>},
                                     {"cpu_amx", make_cpu<CpuIsa::kAmx>, true},
                                     {"cuda", make_cuda, true}};
  for (const DeviceCase& device : emulated_cuda_devices()) devices.push_back(device);
  return devices;
}

std::vector<DeviceCase> available_cpus() {
  std::vector<DeviceCase> devices = available_devices();
  std::erase_if(devices, [](const DeviceCase& device) { return !device.name.starts_with("cpu"); });
  return devices;
}

std::string case_name(const testing::TestParamInfo<DeviceCase>& info) { return info.param.name; }

DeviceMemory::DeviceMemory(Device& device, std::size_t bytes) : device_(device) {
  const std::size_t library_bytes = device_.traits().library_workspace;
  range_ = must(device_.reserve(bytes + library_bytes));
  must(device_.back(range_, 0, range_.bytes, Backing::memory()));
  const std::vector<std::byte> poison(range_.bytes, std::byte{0xFF});
  upload(range_.base, poison);
  usable_ = range_.bytes - library_bytes;
  if (library_bytes > 0) device_.ops().set_library_workspace(range_.base + usable_);
}

DeviceMemory::~DeviceMemory() {
  device_.ops().set_library_workspace(nullptr);
  device_.unback(range_, 0, range_.bytes);
  device_.release(range_);
}

void* DeviceMemory::take(std::size_t bytes, std::size_t misalignment) {
  const std::size_t offset = round_up(used_, kAlignment) + misalignment;
  CHECK(offset + bytes + kGuardBytes <= usable_);
  guards_.push_back(offset + bytes);
  used_ = offset + bytes + kGuardBytes;
  return range_.base + offset;
}

void DeviceMemory::upload(void* target, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  must(device_.copy_to_device(target, bytes.data(), bytes.size()));
  must(device_.synchronize());
}

std::vector<std::byte> DeviceMemory::download(const void* source, std::size_t bytes) {
  std::vector<std::byte> copy(bytes);
  if (bytes > 0) must(device_.copy_to_host(copy.data(), source, bytes));
  must(device_.synchronize());
  return copy;
}

TensorView DeviceMemory::put_vector(const std::vector<float>& values, DType dtype) {
  const auto n = static_cast<std::int64_t>(values.size());
  const TensorView matrix = put_matrix(values, 1, n, dtype);
  return vector_view(matrix.data, dtype, n);
}

TensorView DeviceMemory::put_matrix(const std::vector<float>& values, std::int64_t rows,
                                    std::int64_t cols, DType dtype, std::int64_t row_stride,
                                    std::size_t misalignment) {
  if (row_stride == 0) row_stride = cols;
  CHECK(static_cast<std::int64_t>(values.size()) == rows * cols);
  const auto elements = static_cast<std::size_t>(rows > 0 ? (rows - 1) * row_stride + cols : 0);
  std::vector<std::byte> bytes(elements * size_of(dtype), std::byte{0xFF});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      reference::store_element(bytes.data(), dtype, r * row_stride + c,
                               values[static_cast<std::size_t>(r * cols + c)]);
    }
  }
  void* place = take(bytes.size(), misalignment);
  upload(place, bytes);
  return matrix_view(place, dtype, rows, cols, row_stride);
}

TensorView DeviceMemory::take_matrix(std::int64_t rows, std::int64_t cols, DType dtype,
                                     std::int64_t row_stride) {
  if (row_stride == 0) row_stride = cols;
  const auto elements = static_cast<std::size_t>(rows > 0 ? (rows - 1) * row_stride + cols : 0);
  return matrix_view(take(elements * size_of(dtype)), dtype, rows, cols, row_stride);
}

std::vector<float> DeviceMemory::read_matrix(const TensorView& view) {
  const std::int64_t rows = view.dims[0];
  const std::int64_t cols = view.dims[1];
  if (rows == 0) return {};
  const auto elements = static_cast<std::size_t>((rows - 1) * view.strides[0] + cols);
  const auto bytes = download(view.data, elements * size_of(view.dtype));
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      values.push_back(reference::load_element(bytes.data(), view.dtype, r * view.strides[0] + c));
    }
  }
  return values;
}

void DeviceMemory::check_guards() {
  for (const std::size_t offset : guards_) {
    for (const std::byte byte : download(range_.base + offset, kGuardBytes)) {
      ASSERT_EQ(byte, std::byte{0xFF}) << "written beyond the buffer that ends at " << offset;
    }
  }
}

void DeviceMemory::clear() {
  upload(range_.base, std::vector<std::byte>(used_, std::byte{0xFF}));
  used_ = 0;
  guards_.clear();
}

std::vector<float> round_to(DType dtype, std::vector<float> values) {
  for (float& value : values) {
    std::uint32_t bits = 0;
    reference::store_element(&bits, dtype, 0, value);
    value = reference::load_element(&bits, dtype, 0);
  }
  return values;
}

std::vector<float> random_floats(SplitMix64& rng, std::size_t count, float scale) {
  std::vector<float> values(count);
  for (float& value : values) {
    double sum = 0.0;
    for (int i = 0; i < 6; ++i) sum += rng.uniform() - 0.5;
    value = static_cast<float>(sum * std::sqrt(2.0)) * scale;
  }
  return values;
}

void DeviceTest::SetUp() {
  auto device = GetParam().make(2, false);
  if (!device) GTEST_SKIP() << device.error().message;
  device_ = std::move(*device);
  memory_ = std::make_unique<DeviceMemory>(*device_);
}

std::vector<float> DeviceTest::result(const TensorView& view) {
  EXPECT_TRUE(device_->synchronize());
  memory_->check_guards();
  return memory_->read_matrix(view);
}

std::vector<float> DeviceTest::multiply(const TensorView& x,
                                        const std::vector<MatmulSegment>& segments) {
  const auto rows = static_cast<std::int32_t>(x.dims[0]);
  MatmulParams p;
  p.x = x;
  std::int64_t width = 0;
  for (const MatmulSegment& segment : segments) {
    p.segments[p.num_segments++] = segment;
    width += segment.weight.dims[0];
  }
  p.out = memory_->take_matrix(rows, width, DType::kF32, width + 2);
  p.rows = {memory_->put_count(rows), rows + 1};
  ops().run(p);
  return result(p.out);
}

void DeviceTest::check_gated_bits(const GatedMatmulParams& p, const std::string& what) {
  ops().run(p);
  const std::vector<float> in_one = result(p.out);
  ops().run(p.product());
  ops().run(p.activated());
  expect_same(in_one, result(p.out), what);
}

void expect_close(const std::vector<float>& got, const std::vector<double>& want,
                  const std::vector<double>& tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  int misses = 0;
  for (std::size_t i = 0; i < got.size() && misses < 5; ++i) {
    if (std::abs(got[i] - want[i]) <= tolerance[i]) continue;
    ++misses;
    ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", expected " << want[i]
                  << " within " << tolerance[i];
  }
}

void expect_same(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i]))
        << what << ": element " << i << " is " << got[i] << ", expected exactly " << want[i];
  }
}

double rounding_error(DType dtype, double x) {
  const double unit = dtype == DType::kBF16 ? 0x1p-9 : dtype == DType::kF16 ? 0x1p-12 : 0x1p-25;
  return std::abs(x) * unit * 2 + (dtype == DType::kF16 ? 0x1p-25 : 0.0);
}

}  // namespace sluice::parity
