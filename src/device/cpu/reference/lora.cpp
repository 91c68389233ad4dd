#include <algorithm>

#include "base/check.h"
#include "device/cpu/lora_view.h"
#include "device/cpu/reference/elements.h"
#include "device/cpu/reference/reference_ops.h"

namespace sluice {

using reference::load_element;
using reference::store_element;

namespace {

// Calls f(token, its row of h, module, entry) for each listed token and each module of its adapter.
template <class Function>
void for_each_lora_module(const LoraTable& table, const LoraBatch& batch, std::int32_t segments,
                          const Function& f) {
  for (std::int32_t s = 0; s < segments; ++s) {
    const LoraSegment& segment = batch.segments[s];
    for (std::int32_t i = segment.first; i < segment.first + segment.count; ++i) {
      for (std::int32_t m = 0; m < table.num_modules; ++m) {
        f(batch.tokens[i], i, m, lora_entry(table, segment.slot, m));
      }
    }
  }
}

}  // namespace

void ReferenceOps::execute(const LoraShrinkParams& p) {
  const std::int64_t depth = p.x.dims[1];
  CHECK(p.h.parts == LoraHidden::parts_of(depth));
  const std::int32_t segments = check_lora(p.table, p.batch, p.h, p.x.dims[0]);
  for_each_lora_module(p.table, p.batch, segments,
                       [&](auto token, auto i, auto m, const auto& entry) {
                         const void* a = lora_weights(p.table, entry.a);
                         for (std::int32_t part = 0; part < p.h.parts; ++part) {
                           const std::int64_t begin = part * LoraHidden::kPartDepth;
                           const std::int64_t end = std::min(depth, begin + LoraHidden::kPartDepth);
                           for (std::int32_t r = 0; r < entry.rank; ++r) {
                             double sum = 0.0;
                             for (std::int64_t k = begin; k < end; ++k) {
                               sum += static_cast<double>(load_element(p.x, token, k)) *
                                      load_element(a, p.table.dtype, r * depth + k);
                             }
                             lora_hidden_row(p.h, p.table, part, i, m)[r] = static_cast<float>(sum);
                           }
                         }
                       });
}

void ReferenceOps::execute(const LoraExpandParams& p) {
  const std::int32_t segments = check_lora(p.table, p.batch, p.h, p.out.dims[0]);
  for_each_lora_module(
      p.table, p.batch, segments, [&](auto token, auto i, auto m, const auto& entry) {
        if (entry.rank == 0) return;
        const void* b = lora_weights(p.table, entry.b);
        std::int64_t column = 0;
        for (std::int32_t before = 0; before < m; ++before) column += p.widths[before];
        for (std::int64_t n = 0; n < p.widths[m]; ++n) {
          double sum = 0.0;
          for (std::int32_t r = 0; r < entry.rank; ++r) {
            double h = 0.0;
            for (std::int32_t part = 0; part < p.h.parts; ++part) {
              h += lora_hidden_row(p.h, p.table, part, i, m)[r];
            }
            sum += h * load_element(b, p.table.dtype, r * p.widths[m] + n);
          }
          store_element(
              p.out, token, column + n,
              static_cast<float>(load_element(p.out, token, column + n) + entry.scale * sum));
        }
        if (p.out.dtype != DType::kF32) return;
        apply_lora_gains(p.table, entry, p.widths[m], 0, p.widths[m],
                         static_cast<float*>(p.out.data) + token * p.out.strides[0] + column);
      });
}

}  // namespace sluice
