// Turns a range of code points into sequences of byte ranges that match exactly their UTF-8 forms.
// Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "grammar/grammar.h"

namespace sluice {

struct ByteRange {
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};

// One to four byte ranges in order.
struct ByteSequence {
  std::array<ByteRange, 4> bytes;
  int size = 0;
};

// Appends the sequences for a normalized range without surrogates.
void append_utf8_sequences(CodePointRange range, std::vector<ByteSequence>& out);

}  // namespace sluice
