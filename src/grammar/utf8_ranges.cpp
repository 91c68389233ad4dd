#include "grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"

namespace sluice {
namespace {

constexpr std::array<std::uint32_t, 4> kLastOfSize = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};

// A part whose two ends have the same number of bytes. Where the last bytes do not cover their
// whole range (80 to BF), the part is cut at that byte's boundary first.
void append_same_size(CodePointRange range, int size, std::vector<ByteSequence>& out) {
  for (int tail = 1; tail < size; ++tail) {
    const std::uint32_t mask = (1U << (6 * tail)) - 1;
    if ((range.first & ~mask) == (range.last & ~mask)) break;
    if ((range.first & mask) != 0) {
      append_same_size({range.first, range.first | mask}, size, out);
      append_same_size({(range.first | mask) + 1, range.last}, size, out);
      return;
    }
    if ((range.last & mask) != mask) {
      append_same_size({range.first, (range.last & ~mask) - 1}, size, out);
      append_same_size({range.last & ~mask, range.last}, size, out);
      return;
    }
  }
  std::string first;
  std::string last;
  utf8::append(range.first, first);
  utf8::append(range.last, last);
  ByteSequence sequence;
  sequence.size = size;
  for (int i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sequence.bytes[at] = {static_cast<std::uint8_t>(first[at]),
                          static_cast<std::uint8_t>(last[at])};
  }
  out.push_back(sequence);
}

}  // namespace

void append_utf8_sequences(CodePointRange range, std::vector<ByteSequence>& out) {
  std::uint32_t next = range.first;
  for (int size = 1; size <= 4 && next <= range.last; ++size) {
    const std::uint32_t limit = kLastOfSize[static_cast<std::size_t>(size - 1)];
    if (next > limit) continue;
    append_same_size({next, std::min(range.last, limit)}, size, out);
    next = limit + 1;
  }
}

}  // namespace sluice
