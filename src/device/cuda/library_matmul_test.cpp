#include "device/cuda/library_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "device/cuda/device_impl.h"
#include "device/cuda/fake_cublas_lt.h"
#include "device/cuda/fake_driver.h"
#include "tensor/half.h"

namespace sluice::cuda {
namespace {

using testing::HasSubstr;

TEST(CublasLt, AMissingFunctionIsNamed) {
  FakeCublasLt fake;
  EXPECT_TRUE(load_cublas_lt(FakeCublasLt::lookup, nullptr));
  fake.missing = "cublasLtMatmul";
  const auto api = load_cublas_lt(FakeCublasLt::lookup, nullptr);
  ASSERT_FALSE(api);
  EXPECT_EQ(api.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(api.error().message, HasSubstr("libcublasLt.so.13 has no cublasLtMatmul"));
}

class LibraryMatmulTest : public testing::Test {
 protected:
  static constexpr std::int64_t kDepth = 72;
  static constexpr std::int64_t kColumns[2] = {40, 17};
  static constexpr std::int64_t kOutStride = 60;

  void SetUp() override { driver_.runs_kernels = true; }
  void TearDown() override {
    if (device_ != nullptr) {
      device_->unback(range_, 0, range_.bytes);
      device_->release(range_);
      device_.reset();
    }
    EXPECT_THAT(driver_.broken_rules, testing::IsEmpty());
    EXPECT_THAT(library_.broken_rules, testing::IsEmpty());
    EXPECT_EQ(library_.alive, 0);
    EXPECT_THAT(driver_.allocations, testing::IsEmpty());
    EXPECT_THAT(driver_.reserved, testing::IsEmpty());
  }

  void make(bool deterministic = false) {
    const CublasLtApi api = FakeCublasLt::api();
    auto device = make_device(FakeDriver::api(), 0, {.deterministic = deterministic}, &api);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
    range_ = *device_->reserve(1);
    ASSERT_TRUE(device_->back(range_, 0, range_.bytes));
  }

  // Two segments side by side; `capacity` rows in every buffer, `rows` of them in use.
  MatmulParams product(std::int32_t capacity, std::int32_t rows) {
    SplitMix64 rng(1);
    MatmulParams p;
    p.x = put(0, capacity, rng);
    for (std::int32_t s = 0; s < 2; ++s) p.segments[s].weight = put(1 + s, kColumns[s], rng);
    p.num_segments = 2;
    p.out = matrix_view(range_.base + 3 * kPlace, DType::kF32, capacity, kColumns[0] + kColumns[1],
                        kOutStride);
    EXPECT_TRUE(device_->copy_to_device(range_.base + 4 * kPlace, &rows, sizeof(rows)));
    p.rows = {reinterpret_cast<const std::int32_t*>(range_.base + 4 * kPlace), capacity};
    return p;
  }

  // The rows in use, by plain loops in double precision.
  void expect_product(std::int64_t rows) {
    ASSERT_TRUE(device_->synchronize());
    const auto value = [&](std::int64_t place, std::int64_t row, std::int64_t k) {
      return double{bf16_to_float(
          halves_[static_cast<std::size_t>(place)][static_cast<std::size_t>(row * kDepth + k)])};
    };
    std::vector<float> out(static_cast<std::size_t>(rows * kOutStride));
    ASSERT_TRUE(device_->copy_to_host(out.data(), range_.base + 3 * kPlace, out.size() * 4));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < kColumns[0] + kColumns[1]; ++c) {
        const bool first = c < kColumns[0];
        double want = 0.0;
        for (std::int64_t k = 0; k < kDepth; ++k) {
          want += value(0, r, k) * value(first ? 1 : 2, first ? c : c - kColumns[0], k);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(r * kOutStride + c)], want, 1e-4) << r << "," << c;
      }
    }
  }

  int products() { return library_.calls["cublasLtMatmul"]; }
  int own_kernels() const {
    int count = 0;
    for (const auto& launch : driver_.launches) count += launch.library ? 0 : 1;
    return count;
  }

  FakeDriver driver_;
  FakeCublasLt library_;
  std::unique_ptr<Device> device_;
  AddressRange range_;

 private:
  static constexpr std::size_t kPlace = std::size_t{64} << 10;

  TensorView put(std::int64_t place, std::int64_t rows, SplitMix64& rng) {
    std::vector<std::uint16_t>& values = halves_[static_cast<std::size_t>(place)];
    values.resize(static_cast<std::size_t>(rows * kDepth));
    for (std::uint16_t& value : values) {
      value = float_to_bf16(static_cast<float>(rng.uniform()) - 0.5F);
    }
    std::byte* at = range_.base + static_cast<std::size_t>(place) * kPlace;
    EXPECT_TRUE(device_->copy_to_device(at, values.data(), values.size() * 2));
    return matrix_view(at, DType::kBF16, rows, kDepth);
  }

  std::vector<std::uint16_t> halves_[3];
};

TEST_F(LibraryMatmulTest, ManyRowsGoToTheLibraryACallASegment) {
  make();
  device_->ops().matmul(product(40, 33));
  EXPECT_EQ(products(), 2);
  EXPECT_EQ(own_kernels(), 0);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, FewRowsAndOtherTypesDoNot) {
  make();
  device_->ops().matmul(product(16, 16));
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(own_kernels(), 1);
  expect_product(16);
}

TEST_F(LibraryMatmulTest, AShapeIsAskedForOnce) {
  make();
  for (int i = 0; i < 3; ++i) device_->ops().matmul(product(40, 33));
  EXPECT_EQ(products(), 6);
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 2);
  EXPECT_EQ(library_.calls["cublasLtMatrixLayoutCreate"], 6);
  device_->ops().matmul(product(48, 33));
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 4) << "another number of rows";
}

TEST_F(LibraryMatmulTest, CapturedItRunsWithEveryReplay) {
  make();
  const MatmulParams p = product(40, 33);
  ASSERT_TRUE(device_->begin_capture());
  device_->ops().matmul(p);
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->num_nodes(), 1U);
  EXPECT_EQ(driver_.launches.size(), 0U);
  ASSERT_TRUE(device_->replay(**graph));
  expect_product(33);
  const std::vector<float> zeros(40 * kOutStride);
  ASSERT_TRUE(device_->copy_to_device(p.out.data, zeros.data(), zeros.size() * 4));
  ASSERT_TRUE(device_->replay(**graph));
  expect_product(33);
}

TEST_F(LibraryMatmulTest, OwnKernelsDoWhatItCannot) {
  make();
  MatmulParams p = product(40, 33);
  p.segments[1].bias = vector_view(range_.base + 4096, DType::kBF16, kColumns[1]);
  device_->ops().matmul(p);
  EXPECT_EQ(own_kernels(), 1) << "biases";
  p = product(40, 33);
  p.x.dims[0] = 39;
  device_->ops().matmul(p);
  EXPECT_EQ(own_kernels(), 2) << "a buffer of fewer rows than the capacity";
  expect_product(33);
  library_.knows_a_way = false;
  device_->ops().matmul(product(41, 33));
  device_->ops().matmul(product(41, 33));
  EXPECT_EQ(own_kernels(), 4) << "no algorithm";
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 1) << "asked once";
  EXPECT_EQ(products(), 0);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, DeterministicResultsDoWithoutIt) {
  make(true);
  EXPECT_EQ(library_.calls["cublasLtCreate"], 0);
  device_->ops().matmul(product(40, 33));
  EXPECT_EQ(own_kernels(), 1);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, ALibraryThatDoesNotStartIsDoneWithout) {
  library_.fails["cublasLtCreate"] = CUBLAS_STATUS_NOT_INITIALIZED;
  make();
  device_->ops().matmul(product(40, 33));
  EXPECT_EQ(own_kernels(), 1);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, AFailureFailsTheDevice) {
  make();
  library_.fails["cublasLtMatmul"] = CUBLAS_STATUS_EXECUTION_FAILED;
  device_->ops().matmul(product(40, 33));
  const auto done = device_->synchronize();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(done.error().message, HasSubstr("cuBLASLt fails with status 13"));
}

}  // namespace
}  // namespace sluice::cuda
