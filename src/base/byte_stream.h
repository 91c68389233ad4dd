// ByteWriter and ByteReader: numbers and texts one after the other in memory. A reader never reads
// beyond its bytes: such a read gives zero or nothing, and ok() stays false from then on. Callers
// may read on and look once, at the end.
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

namespace sluice {

static_assert(std::endian::native == std::endian::little, "numbers are written as memory has them");

class ByteWriter {
 public:
  void u32(std::uint32_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  void u64(std::uint64_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  // REQUIRES: less than 4 GiB.
  void text(std::string_view value) {
    u32(static_cast<std::uint32_t>(value.size()));
    bytes(std::as_bytes(std::span(value)));
  }
  void bytes(std::span<const std::byte> value) {
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  // Points into the bytes that are read.
  std::string_view text() {
    const auto value = bytes(u32());
    return {reinterpret_cast<const char*>(value.data()), value.size()};
  }
  std::span<const std::byte> bytes(std::size_t count) {
    if (count > left_.size()) {
      ok_ = false;
      left_ = {};
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
  template <class Number>
  Number number() {
    Number value{};
    const auto raw = bytes(sizeof value);
    if (!raw.empty()) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }

  std::span<const std::byte> left_;
  bool ok_ = true;
};

}  // namespace sluice
