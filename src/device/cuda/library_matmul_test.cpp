#include "device/cuda/library_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/rng.h"
#include "device/cuda/device_impl.h"
#include "tensor/half.h"
#include "tests/support/cuda/fake_cublas_lt.h"
#include "tests/support/cuda/fake_driver.h"

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
  static constexpr std::size_t kPlace = std::size_t{64} << 10;
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // its place

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
    ASSERT_GE(range_.bytes, kWorkspace + device_->traits().library_workspace);
    device_->ops().set_library_workspace(range_.base + kWorkspace);
    ASSERT_TRUE(device_->back(range_, 0, range_.bytes, Backing::memory()));
  }

  // Two segments side by side, their weights apart in memory; `capacity` rows in every buffer,
  // `rows` of them in use.
  MatmulParams product(std::int32_t capacity, std::int32_t rows) {
    SplitMix64 rng(1);
    MatmulParams p;
    biases_.assign(kColumns[0] + kColumns[1], 0.0F);
    p.x = put(0, capacity, rng);
    for (std::int32_t s = 0; s < 2; ++s) p.segments[s].weight = put(1 + s, kColumns[s], rng);
    p.num_segments = 2;
    p.out = matrix_view(range_.base + 3 * kPlace, DType::kF32, capacity, kColumns[0] + kColumns[1],
                        kOutStride);
    EXPECT_TRUE(device_->copy_to_device(range_.base + 4 * kPlace, &rows, sizeof(rows)));
    p.rows = {reinterpret_cast<const std::int32_t*>(range_.base + 4 * kPlace), capacity};
    return p;
  }

  // The second weight, of the same values, right after the first.
  void join_weights(MatmulParams& p) {
    TensorView& second = p.segments[1].weight;
    second.data = range_.base + kPlace + kColumns[0] * kDepth * 2;
    EXPECT_TRUE(device_->copy_to_device(second.data, halves_[2].data(), halves_[2].size() * 2));
  }

  // F32 biases, of the second segment `gap` elements after those of the first.
  void add_biases(MatmulParams& p, std::int64_t gap) {
    for (std::size_t i = 0; i < biases_.size(); ++i) biases_[i] = static_cast<float>(i) * 0.25F;
    auto* to = reinterpret_cast<float*>(range_.base + 5 * kPlace);
    const std::int64_t places[2] = {0, kColumns[0] + gap};
    for (std::size_t s = 0; s < 2; ++s) {
      const float* from = biases_.data() + (s == 0 ? 0 : kColumns[0]);
      p.segments[s].bias = vector_view(to + places[s], DType::kF32, kColumns[s]);
      EXPECT_TRUE(
          device_->copy_to_device(to + places[s], from, static_cast<std::size_t>(kColumns[s]) * 4));
    }
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
        double want = biases_[static_cast<std::size_t>(c)];
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
  std::vector<float> biases_;  // of all columns

 private:
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
  device_->ops().run(product(40, 33));
  EXPECT_EQ(products(), 2);
  EXPECT_EQ(own_kernels(), 0);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, WeightsOneBehindTheOtherAreOneCall) {
  make();
  MatmulParams p = product(40, 33);
  join_weights(p);
  device_->ops().run(p);
  EXPECT_EQ(products(), 1);
  EXPECT_EQ(own_kernels(), 0);
  expect_product(33);
  p.segments[1].weight.dtype = DType::kF16;
  device_->ops().run(p);
  EXPECT_EQ(products(), 1) << "of two types: the plain kernel's";
}

TEST_F(LibraryMatmulTest, BiasesGoWithTheProduct) {
  make();
  MatmulParams p = product(40, 33);
  join_weights(p);
  add_biases(p, 0);
  device_->ops().run(p);
  EXPECT_EQ(products(), 1) << "adjacent biases";
  expect_product(33);
  add_biases(p, 3);
  device_->ops().run(p);
  EXPECT_EQ(products(), 3) << "biases apart";
  expect_product(33);
  p.segments[0].bias = {};
  device_->ops().run(p);
  EXPECT_EQ(products(), 5) << "of one segment only";
  EXPECT_EQ(own_kernels(), 0);
  std::fill_n(biases_.begin(), kColumns[0], 0.0F);
  expect_product(33);
  add_biases(p, 0);
  p.segments[0].bias.dtype = DType::kBF16;
  p.segments[1].bias.dtype = DType::kBF16;
  device_->ops().run(p);
  EXPECT_EQ(products(), 5) << "of another type than out";
  EXPECT_EQ(own_kernels(), 1);
}

// Each layer's biases, with what was found out for the first.
TEST_F(LibraryMatmulTest, CapturedCallsKeepTheirBiases) {
  make();
  MatmulParams p = product(40, 33);
  join_weights(p);
  add_biases(p, 0);
  MatmulParams other = p;
  for (MatmulSegment& segment : std::span(other.segments).first(2)) {
    segment.bias.data = static_cast<std::byte*>(segment.bias.data) + 4096;
  }
  other.out.data = range_.base + 6 * kPlace;
  ASSERT_TRUE(device_->begin_capture());
  device_->ops().run(p);
  device_->ops().run(other);
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 1);
  ASSERT_TRUE(device_->replay(**graph));
  expect_product(33);
}

GatedMatmulParams gated_of(const MatmulParams& p, const TensorView& out) {
  GatedMatmulParams gated;
  gated.x = p.x;
  gated.gate = p.segments[0];
  gated.up = p.segments[1];
  gated.scratch = p.out;
  gated.out = out;
  gated.rows = p.rows;
  return gated;
}

TEST_F(LibraryMatmulTest, GatedProductsAreActivatedBehindIt) {
  make();
  MatmulParams p = product(72, 65);
  p.segments[1] = p.segments[0];
  p.out.dims[1] = 2 * kColumns[0];
  p.out.strides[0] = 2 * kColumns[0];
  const TensorView out = matrix_view(range_.base + 6 * kPlace, DType::kF32, 72, kColumns[0]);
  device_->ops().run(gated_of(p, out));
  EXPECT_EQ(products(), 2);
  ASSERT_EQ(own_kernels(), 1);
  EXPECT_EQ(driver_.launches.back().kernel, KernelId::kGatedActivation);
  ASSERT_TRUE(device_->synchronize());
  std::vector<float> sums(static_cast<std::size_t>(65 * 2 * kColumns[0]));
  std::vector<float> got(static_cast<std::size_t>(65 * kColumns[0]));
  ASSERT_TRUE(device_->copy_to_host(sums.data(), p.out.data, sums.size() * 4));
  ASSERT_TRUE(device_->copy_to_host(got.data(), out.data, got.size() * 4));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double sum = sums[i / kColumns[0] * 2 * kColumns[0] + i % kColumns[0]];
    ASSERT_NEAR(got[i], sum * sum / (1.0 + std::exp(-sum)), 1e-5);
  }
}

TEST_F(LibraryMatmulTest, FewRowsAndOtherTypesDoNot) {
  make();
  device_->ops().run(product(16, 16));
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(own_kernels(), 1);
  expect_product(16);
}

TEST_F(LibraryMatmulTest, AShapeIsAskedForOnce) {
  make();
  for (int i = 0; i < 3; ++i) device_->ops().run(product(40, 33));
  EXPECT_EQ(products(), 6);
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 2);
  EXPECT_EQ(library_.calls["cublasLtMatrixLayoutCreate"], 6);
  device_->ops().run(product(48, 33));
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 4) << "another number of rows";
}

TEST_F(LibraryMatmulTest, CapturedItRunsWithEveryReplay) {
  make();
  const MatmulParams p = product(40, 33);
  ASSERT_TRUE(device_->begin_capture());
  device_->ops().run(p);
  auto graph = device_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)->ops().size(), 1U);
  EXPECT_EQ(driver_.launches.size(), 2U) << "each algorithm once";
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
  p.x.dims[0] = 39;
  device_->ops().run(p);
  EXPECT_EQ(own_kernels(), 1) << "a buffer of fewer rows than the capacity";
  expect_product(33);
  library_.has_algorithms = false;
  device_->ops().run(product(41, 33));
  device_->ops().run(product(41, 33));
  EXPECT_EQ(own_kernels(), 3) << "no algorithm";
  EXPECT_EQ(library_.calls["cublasLtMatmulAlgoGetHeuristic"], 1) << "asked once";
  EXPECT_EQ(products(), 0);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, AShapeWithoutAnAlgorithmIsReported) {
  make();
  library_.fails["cublasLtMatmulAlgoGetHeuristic"] = CUBLAS_STATUS_INTERNAL_ERROR;
  testing::internal::CaptureStderr();
  device_->ops().run(product(40, 33));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("cuBLASLt has no algorithm for 40x72x40 BF16 (status 14); using the "
                        "built-in kernel (slower)"));
  EXPECT_EQ(own_kernels(), 1);
}

TEST_F(LibraryMatmulTest, WithoutAWorkspaceBuiltInKernelsAreUsed) {
  make();
  EXPECT_EQ(device_->traits().library_workspace, std::size_t{32} << 20);
  device_->ops().set_library_workspace(nullptr);
  device_->ops().run(product(40, 33));
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(own_kernels(), 1);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, DeterministicResultsDoWithoutIt) {
  make(true);
  EXPECT_EQ(device_->traits().library_workspace, 0U);
  EXPECT_EQ(library_.calls["cublasLtCreate"], 0);
  device_->ops().run(product(40, 33));
  EXPECT_EQ(own_kernels(), 1);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, ALibraryThatDoesNotStartIsDoneWithout) {
  library_.fails["cublasLtCreate"] = CUBLAS_STATUS_NOT_INITIALIZED;
  make();
  device_->ops().run(product(40, 33));
  EXPECT_EQ(own_kernels(), 1);
  expect_product(33);
}

TEST_F(LibraryMatmulTest, AShapeWhoseCallFailsGoesToTheBuiltInKernel) {
  make();
  library_.fails["cublasLtMatmul"] = CUBLAS_STATUS_EXECUTION_FAILED;
  testing::internal::CaptureStderr();
  device_->ops().run(product(40, 33));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("cuBLASLt fails for 40x72x40 BF16 (status 13); using the built-in kernel"));
  EXPECT_EQ(own_kernels(), 1);
  expect_product(33);
  device_->ops().run(product(40, 33));
  EXPECT_EQ(products(), 1) << "not tried again";
  EXPECT_EQ(own_kernels(), 2);
  library_.fails.clear();
  device_->ops().run(product(48, 33));
  EXPECT_EQ(products(), 3) << "another shape";
}

int library_calls(const std::vector<FakeDriver::Launch>& launches) {
  int count = 0;
  for (const FakeDriver::Launch& launch : launches) count += launch.library ? 1 : 0;
  return count;
}

// The fake library loads an algorithm's code at its first run, which breaks a capture.
TEST_F(LibraryMatmulTest, AnAlgorithmRunsOnceBeforeItIsCaptured) {
  make();
  const MatmulParams p = product(40, 33);
  for (int captures = 1; captures <= 2; ++captures) {
    ASSERT_TRUE(device_->begin_capture());
    device_->ops().run(p);
    const auto graph = device_->end_capture();
    ASSERT_TRUE(graph) << graph.error().message;
    ASSERT_EQ(driver_.executables.size(), 1U);
    EXPECT_EQ(library_calls(driver_.executables.begin()->second), 2);
    EXPECT_EQ(products(), 2 + 2 * captures) << "both segments once, and both in each capture";
    ASSERT_TRUE(device_->replay(**graph));
    expect_product(33);
  }
}

TEST_F(LibraryMatmulTest, AFailureInACaptureIsCapturedAgainWithBuiltInKernels) {
  make();
  const MatmulParams p = product(40, 33);
  library_.fails_in_capture = true;
  ASSERT_TRUE(device_->begin_capture());
  device_->ops().run(p);
  testing::internal::CaptureStderr();
  const auto graph = device_->end_capture();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("capturing the graph again with the built-in kernels (slower)"));
  ASSERT_TRUE(graph) << graph.error().message;
  ASSERT_EQ(driver_.executables.size(), 1U);
  EXPECT_EQ(driver_.executables.begin()->second.size(), 1U);
  EXPECT_EQ(library_calls(driver_.executables.begin()->second), 0);
  ASSERT_TRUE(device_->replay(**graph));
  expect_product(33);
}

}  // namespace
}  // namespace sluice::cuda
