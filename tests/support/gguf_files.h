// Hand-made GGUF files for tests. A builder collects metadata and tensors and returns the bytes of
// a file; tests damage these bytes or give numbers that lie. Header only.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_types.h"

namespace sluice {

template <class T>
std::string gguf_number(T value) {
  std::string raw(sizeof(value), '\0');
  std::memcpy(raw.data(), &value, sizeof(value));
  return raw;
}
inline std::string gguf_text(std::string_view text) {
  return gguf_number(std::uint64_t{text.size()}).append(text);
}

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;

  // `raw`: the bytes of the value.
  GgufBuilder& value(std::string_view key, GgufValueType type, std::string_view raw) {
    metadata_ += gguf_text(key) + gguf_number(static_cast<std::uint32_t>(type));
    metadata_ += raw;
    ++keys_;
    return *this;
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t number) {
    return value(key, GgufValueType::kU32, gguf_number(number));
  }
  GgufBuilder& f32(std::string_view key, float number) {
    return value(key, GgufValueType::kF32, gguf_number(number));
  }
  GgufBuilder& text(std::string_view key, std::string_view text) {
    return value(key, GgufValueType::kText, gguf_text(text));
  }
  // `raw`: the bytes of all elements.
  GgufBuilder& array(std::string_view key, GgufValueType type, std::uint64_t count,
                     std::string_view raw) {
    return value(
        key, GgufValueType::kArray,
        gguf_number(static_cast<std::uint32_t>(type)) + gguf_number(count) + std::string(raw));
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& all) {
    std::string raw;
    for (const std::string& one : all) raw += gguf_text(one);
    return array(key, GgufValueType::kText, all.size(), raw);
  }
  // `dims`: innermost first, as in the file. The bytes follow those of the tensor before.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                      std::uint32_t type, std::string_view bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    tensor_at(name, dims, type, data_.size());
    data_ += bytes;
    return *this;
  }
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                      GgufTensorType type, std::string_view bytes) {
    return tensor(name, dims, static_cast<std::uint32_t>(type), bytes);
  }
  // The entry alone, with any offset.
  GgufBuilder& tensor_at(std::string_view name, const std::vector<std::uint64_t>& dims,
                         std::uint32_t type, std::uint64_t offset) {
    tensors_ += gguf_text(name) + gguf_number(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) tensors_ += gguf_number(dim);
    tensors_ += gguf_number(type) + gguf_number(offset);
    ++num_tensors_;
    return *this;
  }

  std::string bytes() const { return bytes(num_tensors_, keys_); }
  // With counts that need not be true.
  std::string bytes(std::uint64_t num_tensors, std::uint64_t keys) const {
    std::string file = "GGUF" + gguf_number(version) + gguf_number(num_tensors) + gguf_number(keys);
    file += metadata_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

 private:
  std::string metadata_;
  std::string tensors_;
  std::string data_;
  std::uint64_t keys_ = 0;
  std::uint64_t num_tensors_ = 0;
};

}  // namespace sluice
