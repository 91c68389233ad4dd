// The fast matmul kernels, and properties that results do not show: that nothing beyond a matrix is
// touched, and that reads of shared memory do not wait for each other.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/matmul_plan.h"
#include "tensor/float8.h"
#include "tensor/half.h"
#include "tests/support/cuda/emulated_gpu.h"
#include "tests/support/cuda/run_emulated.h"

namespace sluice::cuda {
namespace {

// Memory that ends at a page without access.
class EndOfMemory {
 public:
  explicit EndOfMemory(std::size_t bytes) : used_(bytes) {
    void* got =
        mmap(nullptr, kBytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    base_ = static_cast<std::byte*>(got);
    EXPECT_EQ(mprotect(base_ + kBytes, kPage, PROT_NONE), 0);
  }
  ~EndOfMemory() { munmap(base_, kBytes + kPage); }
  EndOfMemory(const EndOfMemory&) = delete;
  EndOfMemory& operator=(const EndOfMemory&) = delete;
  template <class T>
  T* begin() const {
    return reinterpret_cast<T*>(base_ + kBytes - used_);
  }

 private:
  static constexpr std::size_t kPage = std::size_t{64} << 10;
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::byte* base_ = nullptr;
  std::size_t used_;
};

struct Kernel {
  KernelId id;
  LaunchShape shape;
  std::int64_t rows;
  std::int64_t columns;
  bool fp8 = false;  // weights
};

unsigned shared_of(const TileShape& shape) { return static_cast<unsigned>(shape.shared_bytes()); }

// Rows and columns that end where a thread's next row of a tile would begin.
const Kernel kKernels[] = {
    {KernelId::kMatmul8, {3, 1, kMatmulBlock, 0}, 7, 40},
    {KernelId::kMatmul16, {2, 1, kMatmulBlock, 0}, 13, 48},
    {KernelId::kMatmul16Narrow, {3, 1, kMatmulBlock, 0}, 13, 40},
    {KernelId::kMatmul64, {1, 1, kMatmulBlock, shared_of(kTile64)}, 32, 32},
    {KernelId::kMatmul128, {1, 1, kMatmulBlock, shared_of(kTile128)}, 96, 64},
    {KernelId::kMatmulFp8By8, {3, 1, kMatmulBlock, 0}, 7, 40, true},
    {KernelId::kMatmulFp8By16, {2, 1, kMatmulBlock, 0}, 13, 48, true},
    {KernelId::kMatmulFp8By16Narrow, {3, 1, kMatmulBlock, 0}, 13, 40, true},
    {KernelId::kMatmulFp8By64, {1, 1, kMatmulBlock, shared_of(kFp8Tile64)}, 32, 56, true},
    {KernelId::kMatmulFp8By128, {1, 1, kMatmulBlock, shared_of(kFp8Tile128)}, 96, 56, true},
};

// Scales of 1 and 2 by turns, of blocks of 16 rows by 64.
constexpr std::int32_t kScaleRows = 16;
constexpr std::int32_t kScaleCols = 64;
std::int64_t scale_of(std::int64_t column, std::int64_t k) {
  return 1 + (column / kScaleRows + k / kScaleCols) % 2;
}

std::size_t bytes(std::int64_t count, std::size_t of_one) {
  return static_cast<std::size_t>(count) * of_one;
}

float element(const std::byte* data, DType dtype, std::int64_t index) {
  const auto* halves = reinterpret_cast<const std::uint16_t*>(data);
  switch (dtype) {
    case DType::kBF16: return bf16_to_float(halves[index]);
    case DType::kF16: return f16_to_float(halves[index]);
    default: return reinterpret_cast<const float*>(data)[index];
  }
}

class MatmulKernelsTest : public testing::TestWithParam<Kernel> {
 protected:
  // Small whole numbers, whose products and sums are exact.
  static std::int64_t x_value(std::int64_t index) { return index % 7 - 3; }
  static std::int64_t w_value(std::int64_t index) { return index % 5 - 2; }

  void check(std::int64_t depth, DType out_type, std::int64_t out_stride);
};

void MatmulKernelsTest::check(std::int64_t depth, DType out_type, std::int64_t out_stride) {
  const auto [id, shape, rows, columns, fp8] = GetParam();
  if (fp8 && depth % 16 != 0) depth += 8;
  const EndOfMemory x(bytes(rows * depth, 2));
  const EndOfMemory weight(bytes(columns * depth, fp8 ? 1 : 2));
  const EndOfMemory out(bytes((rows - 1) * out_stride + columns, size_of(out_type)));
  for (std::int64_t i = 0; i < rows * depth; ++i) {
    x.begin<std::uint16_t>()[i] = float_to_bf16(static_cast<float>(x_value(i)));
  }
  for (std::int64_t i = 0; i < columns * depth; ++i) {
    const auto value = static_cast<float>(w_value(i));
    if (fp8) {
      weight.begin<std::uint8_t>()[i] = float_to_e4m3(value);
    } else {
      weight.begin<std::uint16_t>()[i] = float_to_bf16(value);
    }
  }
  const std::int64_t across = (depth + kScaleCols - 1) / kScaleCols;
  const EndOfMemory scales(bytes((columns + kScaleRows - 1) / kScaleRows * across, sizeof(float)));
  for (std::int64_t c = 0; c < columns; c += kScaleRows) {
    for (std::int64_t b = 0; b < across; ++b) {
      scales.begin<float>()[c / kScaleRows * across + b] =
          static_cast<float>(scale_of(c, b * kScaleCols));
    }
  }
  MatmulParams p;
  p.x = matrix_view(x.begin<void>(), DType::kBF16, rows, depth);
  p.segments[0].weight =
      matrix_view(weight.begin<void>(), fp8 ? DType::kF8E4M3 : DType::kBF16, columns, depth);
  if (fp8) p.segments[0].scales = {scales.begin<float>(), kScaleRows, kScaleCols, across};
  p.num_segments = 1;
  p.out = matrix_view(out.begin<void>(), out_type, rows, columns, out_stride);
  p.rows = {nullptr, static_cast<std::int32_t>(rows)};
  emulation::bank_conflicts = 0;
  ASSERT_TRUE(run_emulated(id, shape, &p));
  EXPECT_EQ(emulation::bank_conflicts, 0U);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        sum += x_value(r * depth + k) * w_value(c * depth + k) * (fp8 ? scale_of(c, k) : 1);
      }
      float want = static_cast<float>(sum);
      if (out_type == DType::kBF16) want = bf16_to_float(float_to_bf16(want));
      ASSERT_EQ(element(out.begin<std::byte>(), out_type, r * out_stride + c), want)
          << r << "," << c;
    }
  }
}

TEST_P(MatmulKernelsTest, NothingBehindAMatrixIsTouched) {
  check(40, DType::kF32, GetParam().columns);
  check(128, DType::kF32, GetParam().columns);
}

// As row_multiple() says, which padding is counted by.
TEST_P(MatmulKernelsTest, RowsAreComputedInMultiples) {
  constexpr std::int64_t kDepth = 64;
  const Kernel& kernel = GetParam();
  const std::int32_t multiple = row_multiple(kernel.id);
  std::int32_t rows = 0;
  std::vector<std::uint16_t> x(bytes(2 * multiple * kDepth, 1));
  std::vector<std::uint16_t> weight(bytes(kernel.columns * kDepth, 1));
  std::vector<float> out(bytes(2 * multiple * kernel.columns, 1));
  MatmulParams p;
  p.x = matrix_view(x.data(), DType::kBF16, 2 * multiple, kDepth);
  const float one = 1.0F;
  p.segments[0].weight = matrix_view(weight.data(), kernel.fp8 ? DType::kF8E4M3 : DType::kBF16,
                                     kernel.columns, kDepth);
  if (kernel.fp8) {
    p.segments[0].scales = {&one, static_cast<std::int32_t>(kernel.columns), kDepth, 1};
  }
  p.num_segments = 1;
  p.out = matrix_view(out.data(), DType::kF32, 2 * multiple, kernel.columns);
  p.rows = {&rows, 2 * multiple};
  const auto products = [&](std::int32_t of_rows) {
    rows = of_rows;
    emulation::matrix_products = 0;
    EXPECT_TRUE(run_emulated(kernel.id, kernel.shape, &p));
    return emulation::matrix_products;
  };
  const std::uint64_t least = products(1);
  EXPECT_GT(least, 0U);
  EXPECT_EQ(products(multiple), least);
  if (kernel.shape.shared_bytes == 0) return;  // takes no more rows
  EXPECT_EQ(products(multiple + 1), 2 * least);
}

// Rows at odd places too, so that pairs of columns are stored together and apart.
TEST_P(MatmulKernelsTest, ResultsOfAnyType) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    check(40, type, GetParam().columns + 1);
    check(40, type, GetParam().columns + 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, MatmulKernelsTest, testing::ValuesIn(kKernels),
                         [](const testing::TestParamInfo<Kernel>& kernel) {
                           return std::string(kernel_info(kernel.param.id).name);
                         });

// Their sums are looked at by the parity tests.
TEST(GatedMatmulKernels, NothingBehindAMatrixIsTouched) {
  const Kernel kernels[] = {
      {KernelId::kGatedMatmulFp8By8, {3, 1, kMatmulBlock, 0}, 7, 20, true},
      {KernelId::kGatedMatmulFp8By16, {2, 1, kMatmulBlock, 0}, 13, 24, true},
      {KernelId::kGatedMatmulFp8By64, {1, 1, kMatmulBlock, shared_of(kFp8Tile64)}, 32, 24, true},
      {KernelId::kGatedMatmulFp8By128, {1, 1, kMatmulBlock, shared_of(kFp8Tile128)}, 96, 24, true},
      {KernelId::kGatedMatmul, {1, 1, 256, 0}, 60, 30},
      {KernelId::kGatedMatmul8, {3, 1, kMatmulBlock, 0}, 7, 20},
      {KernelId::kGatedMatmul16, {2, 1, kMatmulBlock, 0}, 13, 24},
      {KernelId::kGatedMatmul64, {1, 1, kMatmulBlock, shared_of(kTile64)}, 32, 16},
      {KernelId::kGatedMatmul128, {1, 1, kMatmulBlock, shared_of(kTile128)}, 96, 32},
  };
  constexpr std::int64_t kDepth = 80;
  const float scale = 1.0F;
  for (const auto& [id, shape, rows, columns, fp8] : kernels) {
    const auto one = [](const EndOfMemory& memory, std::int64_t count) {
      std::fill_n(memory.begin<std::uint16_t>(), count, float_to_bf16(1.0F));
    };
    const EndOfMemory x(bytes(rows * kDepth, 2));
    const EndOfMemory gate(bytes(columns * kDepth, fp8 ? 1 : 2));
    const EndOfMemory up(bytes(columns * kDepth, fp8 ? 1 : 2));
    const EndOfMemory out(bytes(rows * columns, 2));
    one(x, rows * kDepth);
    for (const EndOfMemory* weight : {&gate, &up}) {
      if (fp8) {
        std::fill_n(weight->begin<std::uint8_t>(), columns * kDepth, float_to_e4m3(1.0F));
      } else {
        one(*weight, columns * kDepth);
      }
    }
    const DType type = fp8 ? DType::kF8E4M3 : DType::kBF16;
    GatedMatmulParams p;
    p.x = matrix_view(x.begin<void>(), DType::kBF16, rows, kDepth);
    p.gate.weight = matrix_view(gate.begin<void>(), type, columns, kDepth);
    p.up.weight = matrix_view(up.begin<void>(), type, columns, kDepth);
    if (fp8) {
      p.gate.scales = p.up.scales = {&scale, static_cast<std::int32_t>(columns), kDepth, 1};
    }
    p.out = matrix_view(out.begin<void>(), DType::kBF16, rows, columns);
    p.rows = {nullptr, static_cast<std::int32_t>(rows)};
    emulation::bank_conflicts = 0;
    ASSERT_TRUE(run_emulated(id, shape, &p));
    EXPECT_EQ(emulation::bank_conflicts, 0U);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      ASSERT_EQ(element(out.begin<std::byte>(), DType::kBF16, i),
                bf16_to_float(float_to_bf16(float{kDepth} * float{kDepth})))
          << kernel_info(id).name << ", " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::cuda
