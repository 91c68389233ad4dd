#include "device/op_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "device/op_fields.h"

namespace sluice {
namespace {

using Runner = void (*)(Ops&, const std::byte*);

template <class Params>
Params read_params(const std::byte* bytes) {
  Params params;
  std::memcpy(static_cast<void*>(&params), bytes, sizeof(params));
  return params;
}

// How to call each op, by its id.
template <class... Params>
constexpr auto make_runners(TypeList<Params...>) {
  return std::array<Runner, kNumOps + 1>{
      nullptr, [](Ops& ops, const std::byte* bytes) { ops.run(read_params<Params>(bytes)); }...};
}
constexpr auto kRunners = make_runners(OpTypes{});

template <class T>
std::string format_value(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return fmt::format("{}", value);
}

std::string format_field(const OpField& field, const std::byte* params) {
  const std::byte* bytes = params + field.offset;
  switch (field.type) {
    case FieldType::kAddress: return format_value<const void*>(bytes);
    case FieldType::kInt32: return format_value<std::int32_t>(bytes);
    case FieldType::kInt64: return format_value<std::int64_t>(bytes);
    case FieldType::kFloat: return format_value<float>(bytes);
    case FieldType::kEnum: return format_value<std::uint8_t>(bytes);
  }
  return {};
}

bool is_zero(const OpField& field, const std::byte* params) {
  constexpr std::array<std::byte, 8> kZero{};
  return std::memcmp(params + field.offset, kZero.data(), field.bytes) == 0;
}

// The first field in which two ops of one id differ, or null.
const OpField* differing_field(const OpCall& a, const OpCall& b) {
  for (const OpField& field : op_fields(a.op)) {
    const std::byte* left = a.params.data() + field.offset;
    if (std::memcmp(left, b.params.data() + field.offset, field.bytes) != 0) return &field;
  }
  return nullptr;
}

}  // namespace

void OpList::append_fields(OpId op, const std::byte* params) {
  const std::size_t offset = bytes_.size();
  bytes_.resize(offset + op_info(op).params_bytes);  // zeros, and padding stays zero
  for (const OpField& field : op_fields(op)) {
    std::memcpy(bytes_.data() + offset + field.offset, params + field.offset, field.bytes);
  }
  calls_.push_back({op, offset});
}

Status OpList::append_bytes(OpId op, std::span<const std::byte> params) {
  const std::size_t expected = op_info(op).params_bytes;
  if (expected == 0 || params.size() != expected) {
    return invalid_argument(
        fmt::format("op {} of a list has id {} with {} bytes of parameters, "
                    "expected {}",
                    size(), static_cast<int>(op), params.size(), expected));
  }
  append_fields(op, params.data());
  return {};
}

OpCall OpList::operator[](std::size_t index) const {
  CHECK(index < calls_.size());
  const Call& call = calls_[index];
  return {call.op, std::span(bytes_).subspan(call.offset, op_info(call.op).params_bytes)};
}

std::span<std::byte> OpList::params(std::size_t index) {
  CHECK(index < calls_.size());
  const Call& call = calls_[index];
  return std::span(bytes_).subspan(call.offset, op_info(call.op).params_bytes);
}

void OpList::run(Ops& ops) const {
  for (std::size_t i = 0; i < calls_.size(); ++i) run(ops, i);
}

void OpList::run(Ops& ops, std::size_t index) const {
  const Call& call = calls_[index];
  kRunners[static_cast<std::size_t>(call.op)](ops, bytes_.data() + call.offset);
}

bool operator==(const OpList& a, const OpList& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].op != b[i].op || differing_field(a[i], b[i]) != nullptr) return false;
  }
  return true;
}

// FNV-1a.
std::uint64_t OpList::hash() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
  };
  for (const Call& call : calls_) {
    add(std::as_bytes(std::span(&call.op, 1)));
    for (const OpField& field : op_fields(call.op)) {
      add(std::span(bytes_).subspan(call.offset + field.offset, field.bytes));
    }
  }
  return hash;
}

std::string to_string(const OpCall& call) {
  std::string text = op_info(call.op).name;
  for (const OpField& field : op_fields(call.op)) {
    if (is_zero(field, call.params.data())) continue;
    text += fmt::format(" {}={}", field.name, format_field(field, call.params.data()));
  }
  return text;
}

std::string first_difference(const OpList& list, const OpList& expected) {
  for (std::size_t i = 0; i < std::min(list.size(), expected.size()); ++i) {
    const OpCall got = list[i];
    const OpCall want = expected[i];
    if (got.op != want.op) {
      return fmt::format("op {} is {}, expected {}", i, op_info(got.op).name,
                         op_info(want.op).name);
    }
    const OpField* field = differing_field(got, want);
    if (field == nullptr) continue;
    return fmt::format("op {} ({}): {} is {}, expected {}", i, op_info(got.op).name, field->name,
                       format_field(*field, got.params.data()),
                       format_field(*field, want.params.data()));
  }
  if (list.size() == expected.size()) return {};
  return fmt::format("{} ops, expected {}", list.size(), expected.size());
}

}  // namespace sluice
