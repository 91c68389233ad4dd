// What results do not show of the fast matmul kernels: that nothing behind a matrix is touched, and
// that reads of shared memory do not wait for each other.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <vector>

#include "device/cuda/emulated_gpu.h"
#include "device/cuda/kernels/matmul_tiles.h"
#include "device/cuda/run_emulated.h"
#include "tensor/half.h"

namespace sluice::cuda {
namespace {

// Memory that ends where a page begins which nobody may touch.
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
};

unsigned shared_of(const TileShape& shape) { return static_cast<unsigned>(shape.shared_bytes()); }

// Rows and columns that end where a thread's next row of a tile would begin.
const Kernel kKernels[] = {
    {KernelId::kMatmul8, {3, 1, kMatmulBlock, 0}, 7, 40},
    {KernelId::kMatmul16, {2, 1, kMatmulBlock, 0}, 13, 48},
    {KernelId::kMatmul64, {1, 1, kMatmulBlock, shared_of(kTile64)}, 32, 32},
    {KernelId::kMatmul128, {1, 1, kMatmulBlock, shared_of(kTile128)}, 96, 64},
};

class MatmulKernelsTest : public testing::TestWithParam<Kernel> {};

TEST_P(MatmulKernelsTest, NothingBehindAMatrixIsTouched) {
  const auto [id, shape, rows, columns] = GetParam();
  for (const std::int64_t depth : {40, 128}) {
    const auto bytes = [](std::int64_t count, std::int64_t of_one) {
      return static_cast<std::size_t>(count * of_one);
    };
    const EndOfMemory x(bytes(rows * depth, 2));
    const EndOfMemory weight(bytes(columns * depth, 2));
    const EndOfMemory out(bytes(rows * columns, 4));
    for (std::int64_t i = 0; i < rows * depth; ++i) {
      x.begin<std::uint16_t>()[i] = float_to_bf16(static_cast<float>(i % 7 - 3));
    }
    for (std::int64_t i = 0; i < columns * depth; ++i) {
      weight.begin<std::uint16_t>()[i] = float_to_bf16(static_cast<float>(i % 5 - 2));
    }
    MatmulParams p;
    p.x = matrix_view(x.begin<void>(), DType::kBF16, rows, depth);
    p.segments[0].weight = matrix_view(weight.begin<void>(), DType::kBF16, columns, depth);
    p.num_segments = 1;
    p.out = matrix_view(out.begin<void>(), DType::kF32, rows, columns);
    p.rows = {nullptr, static_cast<std::int32_t>(rows)};
    emulation::bank_conflicts = 0;
    ASSERT_TRUE(run_emulated(id, shape, &p));
    EXPECT_EQ(emulation::bank_conflicts, 0U);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        std::int64_t want = 0;  // small whole numbers: exact in float32
        for (std::int64_t k = 0; k < depth; ++k) {
          want += ((r * depth + k) % 7 - 3) * ((c * depth + k) % 5 - 2);
        }
        ASSERT_EQ(out.begin<float>()[r * columns + c], static_cast<float>(want)) << r << "," << c;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, MatmulKernelsTest, testing::ValuesIn(kKernels),
                         [](const testing::TestParamInfo<Kernel>& kernel) {
                           return std::string(kernel_info(kernel.param.id).op);
                         });

}  // namespace
}  // namespace sluice::cuda
