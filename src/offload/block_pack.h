// Packing of KV blocks in BF16 without loss. The exponents of a model's keys and values take few of
// their 256 values, so a short code for the common ones saves a quarter of a block. Signs and
// mantissas are kept as they are: they do not compress.
//
// A packed block is a list of sections. A section has kSectionFloats floats, the last one fewer:
//
//   width    1 byte: bits of a code. kZeros: all bytes are zero, and nothing follows. kPlain: the
//            bytes follow as they are
//   escapes  2 bytes: how many floats have an exponent that is not in the table
//   table    2^width - 1 bytes: the exponent of each code
//   rest     1 byte for each float: its sign and mantissa
//   codes    `width` bytes for 8 floats; a code with all bits set is an escape
//   escaped  1 byte for each escape: the exponent
//
// Sections have tables of their own, because the scale of keys and values differs between layers
// and heads. Numbers are little-endian. Functions, pure; any thread. No allocation.
#pragma once

#include <cstddef>
#include <span>

namespace sluice {

inline constexpr std::size_t kSectionFloats = 2048;

// The most bytes that pack_block() writes.
std::size_t packed_limit(std::size_t block_bytes);

// Returns the packed size. REQUIRES: the block has whole floats, and `out` packed_limit() bytes.
std::size_t pack_block(std::span<const std::byte> block, std::span<std::byte> out);

// Returns false if `packed` is not a packed block of this size; `block` is then undefined. Safe for
// any bytes.
bool unpack_block(std::span<const std::byte> packed, std::span<std::byte> block);

}  // namespace sluice
