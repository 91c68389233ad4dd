// Ops that compute each row, or each block, by itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "device/cpu/kernels/token_of.h"
#include "device/cpu/reference/elements.h"
#include "device/cpu/reference/reference_ops.h"
#include "device/cpu/row_count.h"

namespace sluice {

using reference::load_element;
using reference::store_element;

namespace {

// residual += add, unless add is empty.
void add_row(const TensorView& add, const TensorView& residual, std::int32_t t) {
  if (add.empty()) return;
  for (std::int64_t i = 0; i < residual.dims[1]; ++i) {
    store_element(residual, t, i, load_element(residual, t, i) + load_element(add, t, i));
  }
}

// The codes of some elements of a row of x: of all, for products with weights in INT8
// (MatmulSegment), or of 32, for those in blocks (MatmulParams).
struct RowCodes {
  std::vector<std::int64_t> codes;
  float scale = 0.0F;
};

// Elements [begin, end) of row t.
// `order`: see MatmulSegment.
RowCodes quantize(const TensorView& x, std::int32_t t, std::int64_t begin, std::int64_t end,
                  const std::int32_t* order = nullptr) {
  const auto value_at = [&](std::int64_t k) {
    return load_element(x, t, order != nullptr ? order[k] : k);
  };
  RowCodes row;
  row.codes.resize(static_cast<std::size_t>(end - begin), 0);
  float largest = 0.0F;
  for (std::int64_t k = begin; k < end; ++k) {
    const float value = value_at(k);
    if (!std::isfinite(value)) {
      row.scale = std::numeric_limits<float>::quiet_NaN();
      return row;
    }
    largest = std::max(largest, std::abs(value));
  }
  if (largest < MatmulParams::kSmallestInput) return row;
  const float factor = 127.0F / largest;
  for (std::int64_t k = begin; k < end; ++k) {
    row.codes[static_cast<std::size_t>(k - begin)] =
        static_cast<std::int64_t>(std::nearbyint(value_at(k) * factor));
  }
  row.scale = largest / 127.0F;
  return row;
}

float multiply_codes(const RowCodes& x, const MatmulSegment& segment, std::int64_t n) {
  const auto* weight = segment.weight.as<std::int8_t>() + n * segment.weight.strides[0];
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < x.codes.size(); ++k) sum += x.codes[k] * weight[k];
  const float product =
      static_cast<float>(sum) * (x.scale * reference::scale_of(segment.scales, n, 0));
  if (segment.bias.empty()) return product;
  return product + load_element(segment.bias.data, segment.bias.dtype, n);
}

constexpr std::int64_t kLine = 32;

std::vector<RowCodes> quantize_lines(const TensorView& x, std::int32_t t,
                                     const std::int32_t* order) {
  std::vector<RowCodes> lines;
  for (std::int64_t k = 0; k < x.dims[1]; k += kLine) {
    lines.push_back(quantize(x, t, k, std::min(k + kLine, x.dims[1]), order));
  }
  return lines;
}

float multiply_lines(const std::vector<RowCodes>& x, const MatmulSegment& segment, std::int64_t n) {
  const DType dtype = segment.weight.dtype;
  const auto* weight =
      segment.weight.as<std::uint8_t>() + n * bytes_of(dtype, segment.weight.strides[0]);
  float sum = 0.0F;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const BlockLine line = block_line(dtype, weight, static_cast<std::int64_t>(i));
    std::int64_t products = 0;
    std::int64_t codes = 0;
    for (std::size_t k = 0; k < x[i].codes.size(); ++k) {
      products += x[i].codes[k] * line.codes[k];
      codes += x[i].codes[k] * line.minimum_runs[k / 16];
    }
    sum = std::fma(static_cast<float>(products), line.scale * x[i].scale, sum);
    if (has_minimum(dtype)) {
      sum = std::fma(-line.minimum, x[i].scale * static_cast<float>(codes), sum);
    }
  }
  if (segment.bias.empty()) return sum;
  return sum + load_element(segment.bias.data, segment.bias.dtype, n);
}

}  // namespace

void ReferenceOps::execute(const EmbedParams& p) {
  const std::int64_t hidden = p.out.dims[1];
  for (std::int32_t t = 0; t < rows_in_use(p.rows); ++t) {
    const std::int32_t id = kernels::token_of(p, t);
    CHECK(id >= 0 && id < p.table.dims[0]);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const float scale = has_scales(p.table.dtype) ? reference::scale_of(p.scales, id, i) : 1.0F;
      const float element = is_blocks(p.table.dtype) ? reference::load_block_element(p.table, id, i)
                                                     : load_element(p.table, id, i);
      store_element(p.out, t, i, element * scale);
    }
  }
}

void ReferenceOps::execute(const RmsNormParams& p) {
  const std::int64_t hidden = p.residual.dims[1];
  for (std::int32_t t = 0; t < rows_in_use(p.rows); ++t) {
    add_row(p.add, p.residual, t);
    double sum = 0.0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double x = load_element(p.residual, t, i);
      sum += x * x;
    }
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(hidden) + p.epsilon);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double weight = load_element(p.weight.data, p.weight.dtype, i);
      store_element(p.out, t, i,
                    static_cast<float>(load_element(p.residual, t, i) * scale * weight));
    }
  }
}

void ReferenceOps::execute(const LayerNormParams& p) {
  const std::int64_t hidden = p.residual.dims[1];
  for (std::int32_t t = 0; t < rows_in_use(p.rows); ++t) {
    add_row(p.add, p.residual, t);
    double sum = 0.0;
    for (std::int64_t i = 0; i < hidden; ++i) sum += load_element(p.residual, t, i);
    const double mean = sum / static_cast<double>(hidden);
    double squares = 0.0;
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double x = load_element(p.residual, t, i) - mean;
      squares += x * x;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(hidden) + p.epsilon);
    for (std::int64_t i = 0; i < hidden; ++i) {
      const double weight = load_element(p.weight.data, p.weight.dtype, i);
      const double bias = p.bias.empty() ? 0.0 : load_element(p.bias.data, p.bias.dtype, i);
      const double x = load_element(p.residual, t, i) - mean;
      store_element(p.out, t, i, static_cast<float>(x * scale * weight + bias));
    }
  }
}

void ReferenceOps::execute(const MatmulParams& p) {
  const std::int64_t depth = p.x.dims[1];
  for (std::int32_t t = 0; t < rows_in_use(p.rows); ++t) {
    std::int64_t column = 0;
    const bool integers = p.segments[0].weight.dtype == DType::kI8;
    const RowCodes codes = integers ? quantize(p.x, t, 0, p.x.dims[1]) : RowCodes();
    for (std::int32_t s = 0; s < p.num_segments; ++s) {
      const MatmulSegment& segment = p.segments[s];
      CHECK((segment.weight.dtype == DType::kI8) == integers);
      const bool in_blocks = is_blocks(segment.weight.dtype);
      CHECK(in_blocks || segment.order == nullptr);
      const auto lines =
          in_blocks ? quantize_lines(p.x, t, segment.order) : std::vector<RowCodes>();
      for (std::int64_t n = 0; n < segment.weight.dims[0]; ++n, ++column) {
        if (integers) {
          store_element(p.out, t, column, multiply_codes(codes, segment, n));
          continue;
        }
        if (in_blocks) {
          store_element(p.out, t, column, multiply_lines(lines, segment, n));
          continue;
        }
        double sum = 0.0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += load_element(p.x, t, k) * reference::load_weight(segment, n, k);
        }
        if (!segment.bias.empty()) {
          sum += load_element(segment.bias.data, segment.bias.dtype, n);
        }
        store_element(p.out, t, column, static_cast<float>(sum));
      }
    }
  }
}

void ReferenceOps::execute(const GatedActivationParams& p) {
  const std::int64_t width = p.out.dims[1];
  for (std::int32_t t = 0; t < rows_in_use(p.rows); ++t) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double gate = load_element(p.gate_up, t, i);
      const double up = load_element(p.gate_up, t, width + i);
      double activated = 0.0;
      switch (p.activation) {
        case GatedActivation::kSilu: activated = gate / (1.0 + std::exp(-gate)); break;
        case GatedActivation::kGeluTanh:
          activated =
              0.5 * gate *
              (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (gate + 0.044715 * gate * gate * gate)));
          break;
      }
      store_element(p.out, t, i, static_cast<float>(activated * up));
    }
  }
}

void ReferenceOps::execute(const GatedMatmulParams& p) {
  run(p.product());
  run(p.activated());
}

void ReferenceOps::execute(const GatherRowsParams& p) {
  const std::int64_t hidden = p.in.dims[1];
  for (std::int32_t i = 0; i < rows_in_use(p.rows); ++i) {
    const std::int32_t row = p.indices[i];
    CHECK(row >= 0 && row < p.in.dims[0]);
    for (std::int64_t c = 0; c < hidden; ++c)
      store_element(p.out, i, c, load_element(p.in, row, c));
  }
}

void ReferenceOps::execute(const AllReduceParams& p) {
  // With one rank the buffer holds the sum already.
  CHECK(p.world_size == 1);
}

void ReferenceOps::execute(const CopyBlocksParams& p) {
  auto* base = static_cast<std::byte*>(p.kv_base);
  for (std::int32_t i = 0; i < rows_in_use(p.rows); ++i) {
    const std::int64_t source = p.pairs[2 * i];
    const std::int64_t target = p.pairs[2 * i + 1];
    std::memmove(base + target * p.block_bytes, base + source * p.block_bytes,
                 static_cast<std::size_t>(p.block_bytes));
  }
}

}  // namespace sluice
