#include "offload/block_pack.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::size_t kFloatBytes = 2;
constexpr std::size_t kEscapeBytes = 2;
constexpr std::uint8_t kZeros = 0;
constexpr std::uint8_t kPlain = 16;
constexpr std::uint8_t kLeastWidth = 2;
constexpr std::uint8_t kMostWidth = 4;
constexpr std::size_t kMostCodes = (std::size_t{1} << kMostWidth) - 1;
constexpr std::size_t kGroup = 8;  // floats whose codes fill whole bytes

using Bytes = std::array<std::uint8_t, kSectionFloats>;
using Table = std::array<std::uint8_t, kMostCodes>;
using ExponentOf = std::array<std::uint8_t, kMostCodes + 1>;  // by code

constexpr std::size_t codes_of(std::uint8_t width) { return (std::size_t{1} << width) - 1; }

std::size_t coded_bytes(std::uint8_t width, std::size_t floats, std::size_t escapes) {
  return 1 + kEscapeBytes + codes_of(width) + floats + floats / kGroup * width + escapes;
}

struct Split {
  Bytes exponents;
  Bytes rest;
  bool zeros = true;
};

// Loops over floats take whole sections, also where the section is shorter: with a constant count
// the compiler uses vectors.

void split(const std::byte* floats, std::size_t count, Split& out) {
  std::array<std::uint16_t, kSectionFloats> bits;
  if (count < kSectionFloats) bits.fill(0);
  std::memcpy(bits.data(), floats, count * kFloatBytes);
  std::uint16_t any = 0;
  for (std::size_t i = 0; i < kSectionFloats; ++i) {
    const std::uint16_t x = bits[i];
    any = static_cast<std::uint16_t>(any | x);
    out.exponents[i] = static_cast<std::uint8_t>(x >> 7);
    out.rest[i] = static_cast<std::uint8_t>((x >> 8 & 0x80) | (x & 0x7F));
  }
  out.zeros = any == 0;
}

void join(const Bytes& exponents, const std::byte* rest_bytes, std::size_t count,
          std::byte* floats) {
  Bytes rest;
  if (count < kSectionFloats) rest.fill(0);
  std::memcpy(rest.data(), rest_bytes, count);
  std::array<std::uint16_t, kSectionFloats> bits;
  for (std::size_t i = 0; i < kSectionFloats; ++i) {
    bits[i] =
        static_cast<std::uint16_t>((rest[i] & 0x80) << 8 | exponents[i] << 7 | (rest[i] & 0x7F));
  }
  std::memcpy(floats, bits.data(), count * kFloatBytes);
}

// The most common exponents, the most common first, and how often each occurs.
struct Common {
  Table table{};
  std::array<std::uint16_t, kMostCodes> counts{};
};

Common count_exponents(const Bytes& exponents, std::size_t count) {
  // Two tables, because equal neighbours would wait for each other in one.
  std::array<std::array<std::uint16_t, 256>, 2> counts{};
  for (std::size_t i = 0; i + 1 < count; i += 2) {
    ++counts[0][exponents[i]];
    ++counts[1][exponents[i + 1]];
  }
  Common common;
  for (std::size_t e = 0; e < 256; ++e) {
    const auto n = static_cast<std::uint16_t>(counts[0][e] + counts[1][e]);
    if (n <= common.counts.back()) continue;
    std::size_t at = kMostCodes - 1;
    for (; at > 0 && common.counts[at - 1] < n; --at) {
      common.counts[at] = common.counts[at - 1];
      common.table[at] = common.table[at - 1];
    }
    common.counts[at] = n;
    common.table[at] = static_cast<std::uint8_t>(e);
  }
  return common;
}

struct Choice {
  std::uint8_t width = kPlain;
  std::size_t escapes = 0;
};

// The width with which the section is smallest.
Choice choose_width(const Common& common, std::size_t count) {
  Choice best;
  std::size_t least = 1 + count * kFloatBytes;
  for (std::uint8_t width = kLeastWidth; width <= kMostWidth; ++width) {
    std::size_t escapes = count;
    for (std::size_t code = 0; code < codes_of(width); ++code) escapes -= common.counts[code];
    const std::size_t bytes = coded_bytes(width, count, escapes);
    if (bytes >= least) continue;
    least = bytes;
    best = {width, escapes};
  }
  return best;
}

template <std::uint8_t width>
void put_codes(const Bytes& codes, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; i += kGroup, out += width) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < kGroup; ++j) bits |= std::uint32_t{codes[i + j]} << (j * width);
    std::memcpy(out, &bits, width);
  }
}

// Looks up two codes at once.
template <std::uint8_t width>
void take_exponents(const std::byte* in, std::size_t count, const ExponentOf& exponent_of,
                    Bytes& exponents) {
  constexpr std::size_t kCodes = std::size_t{1} << width;
  std::array<std::uint16_t, kCodes * kCodes> pairs;
  for (std::size_t second = 0; second < kCodes; ++second) {
    for (std::size_t first = 0; first < kCodes; ++first) {
      pairs[second * kCodes + first] =
          static_cast<std::uint16_t>(exponent_of[first] | exponent_of[second] << 8);
    }
  }
  for (std::size_t i = 0; i < count; i += kGroup, in += width) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, in, width);
    for (std::size_t j = 0; j < kGroup; j += 2) {
      const std::uint16_t pair = pairs[bits >> (j * width) & (kCodes * kCodes - 1)];
      std::memcpy(&exponents[i + j], &pair, 2);
    }
  }
}

// Calls `each` with the index of every byte that equals `wanted`.
template <class Each>
void for_equal(const Bytes& bytes, std::size_t count, std::uint8_t wanted, Each each) {
  const std::uint8_t* const begin = bytes.data();
  const std::uint8_t* const end = begin + count;
  for (const std::uint8_t* at = begin; at < end; ++at) {
    const auto left = static_cast<std::size_t>(end - at);
    at = static_cast<const std::uint8_t*>(std::memchr(at, wanted, left));
    if (at == nullptr) return;
    each(static_cast<std::size_t>(at - begin));
  }
}

std::byte* pack_section(const std::byte* floats, std::size_t count, std::byte* out) {
  Split parts;
  split(floats, count, parts);
  if (parts.zeros) {
    *out = std::byte{kZeros};
    return out + 1;
  }
  const Common common = count_exponents(parts.exponents, count);
  const Choice choice = count % kGroup == 0 ? choose_width(common, count) : Choice{};
  *out++ = std::byte{choice.width};
  if (choice.width == kPlain) {
    std::memcpy(out, floats, count * kFloatBytes);
    return out + count * kFloatBytes;
  }
  const auto escapes = static_cast<std::uint16_t>(choice.escapes);
  std::memcpy(out, &escapes, kEscapeBytes);
  out += kEscapeBytes;
  const std::size_t codes_in_table = codes_of(choice.width);
  std::memcpy(out, common.table.data(), codes_in_table);
  out += codes_in_table;
  std::memcpy(out, parts.rest.data(), count);
  out += count;

  std::array<std::uint8_t, 256> code_of;
  code_of.fill(static_cast<std::uint8_t>(codes_in_table));
  for (std::size_t code = 0; code < codes_in_table && common.counts[code] > 0; ++code) {
    code_of[common.table[code]] = static_cast<std::uint8_t>(code);
  }
  Bytes codes;
  for (std::size_t i = 0; i < count; ++i) codes[i] = code_of[parts.exponents[i]];
  switch (choice.width) {
    case 2: put_codes<2>(codes, count, out); break;
    case 3: put_codes<3>(codes, count, out); break;
    default: put_codes<4>(codes, count, out); break;
  }
  out += count / kGroup * choice.width;
  for_equal(codes, count, static_cast<std::uint8_t>(codes_in_table),
            [&](std::size_t i) { *out++ = std::byte{parts.exponents[i]}; });
  return out;
}

// A packed block from its front.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // Null: there are not so many.
  const std::byte* take(std::size_t count) {
    if (count > bytes_.size()) return nullptr;
    const std::byte* const at = bytes_.data();
    bytes_ = bytes_.subspan(count);
    return at;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

bool unpack_coded(Input& in, std::uint8_t width, std::size_t count, std::byte* floats) {
  std::uint16_t escapes = 0;
  const std::byte* const number = in.take(kEscapeBytes);
  if (number == nullptr) return false;
  std::memcpy(&escapes, number, kEscapeBytes);
  const std::byte* const table = in.take(codes_of(width));
  const std::byte* const rest = in.take(count);
  const std::byte* const coded = in.take(count / kGroup * width);
  const std::byte* const escaped = in.take(escapes);
  if (table == nullptr || rest == nullptr || coded == nullptr || escaped == nullptr) return false;

  ExponentOf exponent_of{};
  std::memcpy(exponent_of.data(), table, codes_of(width));
  // Escapes first get an exponent that no code has.
  const auto codes_end = exponent_of.begin() + static_cast<std::ptrdiff_t>(codes_of(width));
  std::uint8_t unknown = 0;
  while (std::find(exponent_of.begin(), codes_end, unknown) != codes_end) ++unknown;
  *codes_end = unknown;
  Bytes exponents;
  if (count < kSectionFloats) exponents.fill(0);
  switch (width) {
    case 2: take_exponents<2>(coded, count, exponent_of, exponents); break;
    case 3: take_exponents<3>(coded, count, exponent_of, exponents); break;
    default: take_exponents<4>(coded, count, exponent_of, exponents); break;
  }
  std::size_t used = 0;
  for_equal(exponents, count, unknown, [&](std::size_t i) {
    if (used < escapes) exponents[i] = std::to_integer<std::uint8_t>(escaped[used]);
    ++used;
  });
  if (used != escapes) return false;
  join(exponents, rest, count, floats);
  return true;
}

bool unpack_section(Input& in, std::size_t count, std::byte* floats) {
  const std::byte* const first = in.take(1);
  if (first == nullptr) return false;
  const auto width = std::to_integer<std::uint8_t>(*first);
  if (width == kZeros) {
    std::memset(floats, 0, count * kFloatBytes);
    return true;
  }
  if (width == kPlain) {
    const std::byte* const plain = in.take(count * kFloatBytes);
    if (plain != nullptr) std::memcpy(floats, plain, count * kFloatBytes);
    return plain != nullptr;
  }
  if (width < kLeastWidth || width > kMostWidth || count % kGroup != 0) return false;
  return unpack_coded(in, width, count, floats);
}

}  // namespace

std::size_t packed_limit(std::size_t block_bytes) {
  constexpr std::size_t kSectionBytes = kSectionFloats * kFloatBytes;
  return block_bytes + (block_bytes + kSectionBytes - 1) / kSectionBytes;
}

std::size_t pack_block(std::span<const std::byte> block, std::span<std::byte> out) {
  CHECK(block.size() % kFloatBytes == 0 && out.size() >= packed_limit(block.size()));
  const std::size_t floats = block.size() / kFloatBytes;
  std::byte* end = out.data();
  for (std::size_t i = 0; i < floats; i += kSectionFloats) {
    end = pack_section(block.data() + i * kFloatBytes, std::min(kSectionFloats, floats - i), end);
  }
  return static_cast<std::size_t>(end - out.data());
}

bool unpack_block(std::span<const std::byte> packed, std::span<std::byte> block) {
  CHECK(block.size() % kFloatBytes == 0);
  const std::size_t floats = block.size() / kFloatBytes;
  Input in(packed);
  for (std::size_t i = 0; i < floats; i += kSectionFloats) {
    const std::size_t count = std::min(kSectionFloats, floats - i);
    if (!unpack_section(in, count, block.data() + i * kFloatBytes)) return false;
  }
  return in.empty();
}

}  // namespace sluice
