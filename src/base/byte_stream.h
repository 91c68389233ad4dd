// ByteWriter and ByteReader: plain values one after the other in memory, for binary files of ours.
// Numbers are little-endian, texts stand behind their length. A reader never reads beyond its
// bytes: such a read gives zero or nothing, and from then on ok() is false, which the caller checks
// before it uses what it read.
// Values; one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash128.h"

namespace sluice {

static_assert(std::endian::native == std::endian::little, "files hold numbers as memory does");

class ByteWriter {
 public:
  void u32(std::uint32_t value) { number(value); }
  void u64(std::uint64_t value) { number(value); }
  void hash(const Hash128& value) {
    number(value.high);
    number(value.low);
  }
  // 7 bits a byte, the lowest first; small numbers take one byte.
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(std::byte(0x80 | (value & 0x7f)));
    bytes_.push_back(std::byte(value));
  }
  void text(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    bytes(std::as_bytes(std::span(value)));
  }
  void bytes(std::span<const std::byte> value) {
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  // Zeros up to a multiple of `alignment`.
  void align(std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }

  std::size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& written() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <class T>
  void number(T value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }

  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  Hash128 hash() {
    const std::uint64_t high = u64();
    return {high, u64()};
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto one = bytes(1);
      if (!ok_) return 0;
      const auto byte = std::to_integer<std::uint64_t>(one[0]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  std::string_view text() {
    const auto value = bytes(u32());
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }
  std::span<const std::byte> bytes(std::size_t count) {
    if (count > left_.size()) {
      fail();
      return {};
    }
    const auto value = left_.first(count);
    left_ = left_.subspan(count);
    return value;
  }

  // Whether every read so far lay within the bytes.
  bool ok() const { return ok_; }
  std::size_t left() const { return left_.size(); }

 private:
  void fail() {
    ok_ = false;
    left_ = {};
  }
  template <class T>
  T number() {
    T value{};
    const auto raw = bytes(sizeof(value));
    if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof(value));
    return value;
  }

  std::span<const std::byte> left_;
  bool ok_ = true;
};

}  // namespace sluice
