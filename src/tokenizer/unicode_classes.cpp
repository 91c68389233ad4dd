#include "tokenizer/unicode_classes.h"

#include <algorithm>
#include <new>

#include "tokenizer/unicode_tables.h"

namespace sluice::unicode {

// calloc() gives fresh pages of the system: those of ranges without any class take no memory.
Classes::Classes() : masks_(static_cast<std::uint8_t*>(std::calloc(kCodePoints, 1))) {
  if (masks_ == nullptr) throw std::bad_alloc();
  const auto add = [this](Ranges ranges, ClassMask mask) {
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
      at += ranges[i];
      for (std::size_t end = at + ranges[i + 1]; at < end; ++at) masks_.get()[at] |= mask;
    }
  };
  add(letters(), kLetter);
  add(numbers(), kNumber);
  add(spaces(), kSpace);
  add(numerics(), kNumeric);
  add(punctuation(), kPunctuation);
  add(word_characters(), kWord);
  add(marks(), kMark);
  add(normalizer_barriers(), kBarrier);
}

const Classes& classes() {
  static const Classes table;
  return table;
}

std::uint32_t to_lowercase(std::uint32_t code_point) {
  const auto runs = lowercase_runs();
  const auto run = std::partition_point(runs.begin(), runs.end(),
                                        [&](const LowercaseRun& r) { return r.last < code_point; });
  if (run == runs.end() || code_point < run->first) return code_point;
  if ((code_point - run->first) % run->stride != 0) return code_point;
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(code_point) + run->delta);
}

}  // namespace sluice::unicode
