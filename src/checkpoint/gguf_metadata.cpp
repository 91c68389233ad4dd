#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "checkpoint/gguf.h"
#include "checkpoint/quote_text.h"

namespace sluice {
namespace {

template <class T>
T number_at(const std::byte* bytes) {
  T value{};
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

bool is_integer(GgufValueType type) {
  switch (type) {
    case GgufValueType::kF32:
    case GgufValueType::kF64:
    case GgufValueType::kBool:
    case GgufValueType::kText:
    case GgufValueType::kArray: return false;
    default: return true;
  }
}

// Nothing for a U64 beyond 63 bits. REQUIRES: is_integer(type).
std::optional<std::int64_t> integer_at(GgufValueType type, const std::byte* bytes) {
  switch (type) {
    case GgufValueType::kU8: return number_at<std::uint8_t>(bytes);
    case GgufValueType::kI8: return number_at<std::int8_t>(bytes);
    case GgufValueType::kU16: return number_at<std::uint16_t>(bytes);
    case GgufValueType::kI16: return number_at<std::int16_t>(bytes);
    case GgufValueType::kU32: return number_at<std::uint32_t>(bytes);
    case GgufValueType::kI32: return number_at<std::int32_t>(bytes);
    case GgufValueType::kI64: return number_at<std::int64_t>(bytes);
    default: break;
  }
  const auto value = number_at<std::uint64_t>(bytes);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
  return static_cast<std::int64_t>(value);
}

bool is_real(GgufValueType type) {
  return type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

double real_at(GgufValueType type, const std::byte* bytes) {
  return type == GgufValueType::kF32 ? double{number_at<float>(bytes)} : number_at<double>(bytes);
}

// The text at the front of `bytes`, which lose it. REQUIRES: checked by parse_gguf().
std::string_view take_text(std::span<const std::byte>& bytes) {
  const auto length = static_cast<std::size_t>(number_at<std::uint64_t>(bytes.data()));
  const auto text = bytes.subspan(sizeof(std::uint64_t), length);
  bytes = bytes.subspan(sizeof(std::uint64_t) + length);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

Error wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) {
  return invalid_argument(fmt::format("metadata {}: is {}{}; expected {}", quote_text(key),
                                      value.is_array ? "an array of " : "",
                                      gguf_value_type_name(value.type), expected));
}

}  // namespace

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), key,
                                      [](const Entry& e, std::string_view k) { return e.key < k; });
  return found != entries_.end() && found->key == key ? &found->value : nullptr;
}

Result<std::optional<std::uint64_t>> GgufMetadata::whole_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || !is_integer(value->type)) {
    return wrong_type(key, *value, "a whole number");
  }
  if (value->type == GgufValueType::kU64) return number_at<std::uint64_t>(value->bytes.data());
  const std::int64_t number = *integer_at(value->type, value->bytes.data());
  if (number < 0) {
    return invalid_argument(fmt::format("metadata {}: is {}; expected a number of at least 0",
                                        quote_text(key), number));
  }
  return static_cast<std::uint64_t>(number);
}

Result<std::optional<double>> GgufMetadata::real_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || !is_real(value->type)) return wrong_type(key, *value, "F32 or F64");
  return real_at(value->type, value->bytes.data());
}

Result<std::optional<bool>> GgufMetadata::flag(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufValueType::kBool) {
    return wrong_type(key, *value, "a bool");
  }
  return value->bytes.front() != std::byte{0};
}

Result<std::optional<std::string_view>> GgufMetadata::text(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != GgufValueType::kText) {
    return wrong_type(key, *value, "a text");
  }
  std::span<const std::byte> bytes = value->bytes;
  return take_text(bytes);
}

Result<std::optional<std::vector<std::string_view>>> GgufMetadata::texts(
    std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || value->type != GgufValueType::kText) {
    return wrong_type(key, *value, "an array of texts");
  }
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<std::size_t>(value->count));
  std::span<const std::byte> bytes = value->bytes;
  while (!bytes.empty()) texts.push_back(take_text(bytes));
  return texts;
}

Result<std::optional<std::vector<std::int64_t>>> GgufMetadata::integers(
    std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || !is_integer(value->type)) {
    return wrong_type(key, *value, "an array of integers");
  }
  std::vector<std::int64_t> numbers;
  numbers.reserve(static_cast<std::size_t>(value->count));
  const auto size = static_cast<std::size_t>(gguf_value_bytes(value->type));
  for (std::size_t at = 0; at < value->bytes.size(); at += size) {
    const auto number = integer_at(value->type, value->bytes.data() + at);
    if (!number) {
      return invalid_argument(
          fmt::format("metadata {}: holds a number beyond 63 bits", quote_text(key)));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::optional<std::vector<double>>> GgufMetadata::real_numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || !is_real(value->type)) {
    return wrong_type(key, *value, "an array of F32 or F64");
  }
  std::vector<double> numbers;
  numbers.reserve(static_cast<std::size_t>(value->count));
  const auto size = static_cast<std::size_t>(gguf_value_bytes(value->type));
  for (std::size_t at = 0; at < value->bytes.size(); at += size) {
    numbers.push_back(real_at(value->type, value->bytes.data() + at));
  }
  return numbers;
}

}  // namespace sluice
