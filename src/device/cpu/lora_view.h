// Access to the inputs of the CPU's LoRA ops: counts, segments and entries, with checks.
// Values: plain; any thread.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "device/cpu/row_count.h"
#include "device/op_params.h"

namespace sluice {

inline const LoraEntry& lora_entry(const LoraTable& table, std::int32_t slot, std::int32_t module) {
  return table.entries[slot * table.stride + module];
}

// An entry's A or B, by its offset.
inline const void* lora_weights(const LoraTable& table, std::int64_t offset) {
  return static_cast<const char*>(table.base) + offset;
}

// Applies an entry's gains, if it has any, to columns [begin, end) of one row of its module.
// `row`: the module's first column.
inline void apply_lora_gains(const LoraTable& table, const LoraEntry& entry, std::int64_t width,
                             std::int64_t begin, std::int64_t end, float* row) {
  if (entry.gain == LoraEntry::kNoGain) return;
  const auto* const gain = static_cast<const float*>(lora_weights(table, entry.gain));
  const float* const shift = gain + width;
  for (std::int64_t n = begin; n < end; ++n) row[n] = gain[n] * row[n] + shift[n];
}

// CHECKs all segments and the entries that they use. Returns the number of segments. `rows` is the
// number of rows of the matrix that tokens index.
inline std::int32_t check_lora(const LoraTable& table, const LoraBatch& batch, const LoraHidden& h,
                               std::int64_t rows) {
  CHECK(table.num_modules > 0 && table.num_modules <= LoraTable::kMaxModules);
  CHECK(table.max_rank > 0 && table.max_rank <= LoraTable::kMaxRank);
  const std::int32_t count = rows_in_use(batch.num_segments);
  for (std::int32_t s = 0; s < count; ++s) {
    const LoraSegment& segment = batch.segments[s];
    CHECK(segment.count > 0 && segment.count <= LoraSegment::kMaxTokens);
    CHECK(segment.first >= 0 && segment.first + segment.count <= h.capacity);
    CHECK(segment.slot >= 0 && segment.slot < table.num_slots);
    for (std::int32_t i = 0; i < segment.count; ++i) {
      const std::int32_t token = batch.tokens[segment.first + i];
      CHECK(token >= 0 && token < rows);
    }
    for (std::int32_t m = 0; m < table.num_modules; ++m) {
      const LoraEntry& entry = lora_entry(table, segment.slot, m);
      CHECK(entry.rank >= 0 && entry.rank <= table.max_rank);
      CHECK(entry.a % LoraEntry::kAlignment == 0 && entry.b % LoraEntry::kAlignment == 0);
      CHECK(entry.gain % LoraEntry::kAlignment == 0);
    }
  }
  return count;
}

// The first column of a module in row `i` of a part of h.
inline float* lora_hidden_row(const LoraHidden& h, const LoraTable& table, std::int32_t part,
                              std::int32_t i, std::int32_t module) {
  const std::int64_t row = std::int64_t{part} * h.capacity + i;
  return h.data + (row * table.num_modules + module) * table.max_rank;
}

}  // namespace sluice
