#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/parity/support.h"

namespace sluice::parity {
namespace {

class RowOpsTest : public DeviceTest {};

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::int64_t kWidths[] = {1, 8, 20, 64, 100, 257, 2048};
// Rows that take 2, 3 and 4 rounds of a block of the CUDA kernel, and one more than it keeps in
// registers.
constexpr std::int64_t kWideRows[] = {4096, 5000, 8192, 8196};

RowCount count_of(DeviceMemory& memory, std::int32_t count) {
  return {memory.put_count(count), count + 3};
}

TEST_P(RowOpsTest, EmbedWidensRowsOfTheTable) {
  SplitMix64 rng(1);
  for (const DType dtype : kFloats) {
    for (const std::int64_t hidden : kWidths) {
      const auto table = round_to(dtype, random_floats(rng, static_cast<std::size_t>(9 * hidden)));
      EmbedParams p;
      p.table = memory_->put_matrix(table, 9, hidden, dtype);
      p.token_ids = memory_->put(std::vector<std::int32_t>{8, 0, 3, 3});
      p.out = memory_->take_matrix(4, hidden, DType::kF32);
      p.rows = count_of(*memory_, 4);
      ops().run(p);
      std::vector<float> want;
      for (const std::int64_t id : {8, 0, 3, 3}) {
        want.insert(want.end(), table.begin() + id * hidden, table.begin() + (id + 1) * hidden);
      }
      expect_same(result(p.out), want, dtype_name(dtype));
    }
  }
}

TEST_P(RowOpsTest, EmbedLooksUpTheLastTokensOfSlots) {
  SplitMix64 rng(7);
  const auto table = random_floats(rng, 9 * 20);
  EmbedParams p;
  p.table = memory_->put_matrix(table, 9, 20, DType::kF32);
  p.token_ids = memory_->put(std::vector<std::int32_t>{-1, 8, -3, -3, 0});
  p.last_tokens = memory_->put(std::vector<std::int32_t>{5, -1, 0});
  p.out = memory_->take_matrix(5, 20, DType::kF32);
  p.rows = count_of(*memory_, 5);
  ops().run(p);
  std::vector<float> want;
  for (const int id : {5, 8, 0, 0, 0}) {
    want.insert(want.end(), table.begin() + id * 20, table.begin() + (id + 1) * 20);
  }
  expect_same(result(p.out), want, "tokens of slots");
}

TEST_P(RowOpsTest, GatherRowsCopiesAndConverts) {
  SplitMix64 rng(2);
  for (const DType to : kFloats) {
    const auto in = random_floats(rng, 5 * 37);
    GatherRowsParams p;
    p.in = memory_->put_matrix(in, 5, 37, DType::kF32, 40);
    p.indices = memory_->put(std::vector<std::int32_t>{4, 4, 1});
    p.out = memory_->take_matrix(3, 37, to);
    p.rows = count_of(*memory_, 3);
    ops().run(p);
    std::vector<float> want;
    for (const int row : {4, 4, 1}) {
      want.insert(want.end(), in.begin() + row * 37, in.begin() + (row + 1) * 37);
    }
    expect_same(result(p.out), round_to(to, want), dtype_name(to));
  }
}

TEST_P(RowOpsTest, RmsNormWithAndWithoutResidual) {
  std::vector<std::int64_t> widths(std::begin(kWidths), std::end(kWidths));
  widths.insert(widths.end(), std::begin(kWideRows), std::end(kWideRows));
  SplitMix64 rng(3);
  const std::int64_t rows = 3;
  for (const DType weight_type : kFloats) {
    for (const DType out_type : kFloats) {
      for (const std::int64_t hidden : widths) {
        const bool add = (hidden & 1) == 0;
        const auto n = static_cast<std::size_t>(rows * hidden);
        const auto residual = random_floats(rng, n, 3.0F);
        const auto addend = random_floats(rng, n);
        const auto weight =
            round_to(weight_type, random_floats(rng, static_cast<std::size_t>(hidden)));
        RmsNormParams p;
        p.residual = memory_->put_matrix(residual, rows, hidden, DType::kF32);
        if (add) p.add = memory_->put_matrix(addend, rows, hidden, DType::kF32);
        p.weight = memory_->put_vector(weight, weight_type);
        p.out = memory_->take_matrix(rows, hidden, out_type);
        p.epsilon = 1e-5F;
        p.rows = count_of(*memory_, rows);
        ops().run(p);
        const auto sums = memory_->read_matrix(p.residual);
        std::vector<double> want(n);
        std::vector<double> tolerance(n);
        for (std::size_t at = 0; at < n; ++at) {
          ASSERT_EQ(sums[at], add ? residual[at] + addend[at] : residual[at]);
        }
        for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
          const auto width = static_cast<std::size_t>(hidden);
          double squares = 0.0;
          for (std::size_t i = 0; i < width; ++i) {
            squares += static_cast<double>(sums[r * width + i]) * sums[r * width + i];
          }
          const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + 1e-5F);
          for (std::size_t i = 0; i < width; ++i) {
            const std::size_t at = r * width + i;
            want[at] = sums[at] * scale * weight[i];
            tolerance[at] = 2e-6 * std::abs(want[at]) + rounding_error(out_type, want[at]);
          }
        }
        expect_close(result(p.out), want, tolerance, "hidden " + std::to_string(hidden));
      }
    }
  }
}

// A device may have a faster form for aligned rows. Both forms give the same bits, so a row's
// result does not depend on where it lies.
TEST_P(RowOpsTest, NormsOfAlignedAndOtherRowsAreEqual) {
  SplitMix64 rng(10);
  constexpr std::int64_t kRows = 2;
  for (const DType out_type : kFloats) {
    for (const std::int64_t hidden : kWideRows) {
      const auto n = static_cast<std::size_t>(kRows * hidden);
      const auto residual = random_floats(rng, n, 3.0F);
      const auto addend = random_floats(rng, n);
      const auto weight = random_floats(rng, static_cast<std::size_t>(hidden));
      const auto run = [&](std::int64_t stride, bool layer_norm) {
        const TensorView in = memory_->put_matrix(residual, kRows, hidden, DType::kF32, stride);
        const TensorView add = memory_->put_matrix(addend, kRows, hidden, DType::kF32);
        const TensorView weights = memory_->put_vector(weight, DType::kF32);
        const TensorView out = memory_->take_matrix(kRows, hidden, out_type);
        const RowCount rows = count_of(*memory_, kRows);
        if (layer_norm) {
          ops().run(LayerNormParams{in, add, weights, weights, out, 1e-5F, rows});
        } else {
          ops().run(RmsNormParams{in, add, weights, out, 1e-5F, rows});
        }
        return result(out);
      };
      for (const bool layer_norm : {false, true}) {
        expect_same(run(hidden, layer_norm), run(hidden + 1, layer_norm),
                    std::to_string(hidden) + " to " + std::string(dtype_name(out_type)));
      }
    }
  }
}

// Also where the mean is large against the deviations, as in the layers of real models.
TEST_P(RowOpsTest, LayerNormWithAndWithoutBiasAndResidual) {
  SplitMix64 rng(9);
  constexpr std::size_t kRows = 3;
  for (const DType weight_type : kFloats) {
    for (const DType out_type : kFloats) {
      for (const std::int64_t hidden : kWidths) {
        const auto width = static_cast<std::size_t>(hidden);
        const bool add = (hidden & 1) == 0;
        const bool bias = hidden % 3 != 0;
        const float offset = hidden == 64 ? 100.0F : 1.0F;
        auto residual = random_floats(rng, kRows * width, 3.0F);
        for (float& x : residual) x += offset;
        const auto addend = random_floats(rng, kRows * width);
        const auto weight = round_to(weight_type, random_floats(rng, width));
        const auto biases = round_to(weight_type, random_floats(rng, width));
        LayerNormParams p;
        p.residual = memory_->put_matrix(residual, kRows, hidden, DType::kF32);
        if (add) p.add = memory_->put_matrix(addend, kRows, hidden, DType::kF32);
        p.weight = memory_->put_vector(weight, weight_type);
        if (bias) p.bias = memory_->put_vector(biases, weight_type);
        p.out = memory_->take_matrix(kRows, hidden, out_type);
        p.epsilon = 1e-5F;
        p.rows = count_of(*memory_, kRows);
        ops().run(p);
        const auto sums = memory_->read_matrix(p.residual);
        std::vector<double> want;
        std::vector<double> tolerance;
        for (std::size_t r = 0; r < kRows; ++r) {
          const auto row = std::span(sums).subspan(r * width, width);
          const double mean =
              std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(hidden);
          double squares = 0.0;
          for (const float x : row) squares += (x - mean) * (x - mean);
          const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + 1e-5F);
          for (std::size_t i = 0; i < width; ++i) {
            const std::size_t at = r * width + i;
            ASSERT_EQ(sums[at], add ? residual[at] + addend[at] : residual[at]);
            want.push_back((row[i] - mean) * scale * weight[i] + (bias ? biases[i] : 0.0F));
            // The mean is a rounded float.
            const double of_mean = 2e-7 * (std::abs(mean) + offset) * scale * std::abs(weight[i]);
            tolerance.push_back(4e-6 * (1.0 + std::abs(want[at])) + 4 * of_mean +
                                rounding_error(out_type, want[at]));
          }
        }
        expect_close(result(p.out), want, tolerance, "hidden " + std::to_string(hidden));
      }
    }
  }
}

TEST_P(RowOpsTest, GatedActivations) {
  SplitMix64 rng(4);
  for (const GatedActivation activation : {GatedActivation::kSilu, GatedActivation::kGeluTanh}) {
    for (const DType out_type : kFloats) {
      for (const std::int64_t width : kWidths) {
        auto gate_up = random_floats(rng, static_cast<std::size_t>(4 * width), 4.0F);
        gate_up[0] = 0.0F;
        if (width > 2) gate_up[1] = -120.0F;
        if (width > 2) gate_up[2] = 200.0F;
        GatedActivationParams p;
        p.gate_up = memory_->put_matrix(gate_up, 2, 2 * width, DType::kF32);
        p.out = memory_->take_matrix(2, width, out_type);
        p.activation = activation;
        p.rows = count_of(*memory_, 2);
        ops().run(p);
        std::vector<double> want;
        std::vector<double> tolerance;
        for (std::int64_t r = 0; r < 2; ++r) {
          for (std::int64_t i = 0; i < width; ++i) {
            const double g = gate_up[static_cast<std::size_t>(r * 2 * width + i)];
            const double up = gate_up[static_cast<std::size_t>((r * 2 + 1) * width + i)];
            const double u = 0.7978845608028654 * (g + 0.044715 * g * g * g);
            const double activated = activation == GatedActivation::kSilu
                                         ? g / (1.0 + std::exp(-g))
                                         : 0.5 * g * (1.0 + std::tanh(u));
            want.push_back(activated * up);
            tolerance.push_back(3e-6 * std::abs(g * up) * std::abs(activated / (g + 1e-30)) +
                                1e-30 + 1e-7 * std::abs(up) +
                                rounding_error(out_type, want.back()));
          }
        }
        expect_close(result(p.out), want, tolerance, "width " + std::to_string(width));
      }
    }
  }
}

TEST_P(RowOpsTest, AllReduceOfOneRankChangesNothing) {
  SplitMix64 rng(5);
  const auto values = random_floats(rng, 3 * 17);
  AllReduceParams p;
  p.buffer = memory_->put_matrix(values, 3, 17, DType::kF32);
  p.rows = count_of(*memory_, 3);
  ops().run(p);
  expect_same(result(p.buffer), values, "buffer");
}

TEST_P(RowOpsTest, CopyBlocksCopiesWholeBlocks) {
  SplitMix64 rng(6);
  for (const std::int64_t floats : {1000, 1001, 3}) {  // also where wide copies would be misaligned
    const auto values = random_floats(rng, static_cast<std::size_t>(6 * floats));
    const TensorView blocks = memory_->put_matrix(values, 6, floats, DType::kF32);
    CopyBlocksParams p;
    p.kv_base = blocks.data;
    p.block_bytes = 4 * floats;
    p.pairs = memory_->put(std::vector<std::int32_t>{0, 3, 5, 1, 2, 2, 4, 4});
    p.rows = count_of(*memory_, 3);
    ops().run(p);
    auto want = values;
    std::copy_n(values.begin(), floats, want.begin() + 3 * floats);
    std::copy_n(values.begin() + 5 * floats, floats, want.begin() + floats);
    expect_same(result(blocks), want, "blocks of " + std::to_string(floats));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowOpsTest, testing::ValuesIn(available_devices()), case_name);

}  // namespace
}  // namespace sluice::parity
