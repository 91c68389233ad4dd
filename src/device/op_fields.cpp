#include "device/op_fields.h"

#include <array>
#include <utility>
#include <vector>

#include "device/op_tables.h"

namespace sluice {
namespace {

using op_tables::kFields;

template <class Member>
constexpr FieldType type_of() {
  if constexpr (std::is_pointer_v<Member>) return FieldType::kAddress;
  if constexpr (std::is_enum_v<Member>) return FieldType::kEnum;
  if constexpr (std::is_same_v<Member, float>) return FieldType::kFloat;
  if constexpr (std::is_same_v<Member, std::int64_t>) return FieldType::kInt64;
  if constexpr (std::is_same_v<Member, std::int32_t>) return FieldType::kInt32;
}

class Flattener {
 public:
  explicit Flattener(const void* object) : base_(static_cast<const std::byte*>(object)) {}

  template <class Struct>
  void add_members(const std::string& prefix, const Struct& object) {
    static_assert(op_tables::lists_every_member<Struct>());
    if constexpr (std::is_same_v<Struct, TensorView>) tensors_.push_back(offset_of(object));
    std::apply(
        [&](const auto&... field) {
          (add(prefix + field.name, field.kind, object.*field.member), ...);
        },
        kFields<Struct>);
  }

  std::vector<OpField> take() { return std::move(fields_); }
  std::vector<std::size_t> take_tensors() { return std::move(tensors_); }

 private:
  template <class Member>
  void add(const std::string& name, FieldKind kind, const Member& member) {
    if constexpr (std::is_array_v<Member>) {
      for (std::size_t i = 0; i < std::size(member); ++i) {
        add(name + "[" + std::to_string(i) + "]", kind, member[i]);
      }
    } else if constexpr (std::is_class_v<Member>) {
      add_members(name + ".", member);
    } else {
      fields_.push_back({name, kind, type_of<Member>(), offset_of(member), sizeof(Member)});
    }
  }
  template <class Member>
  std::size_t offset_of(const Member& member) const {
    return static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&member) - base_);
  }

  const std::byte* base_;
  std::vector<OpField> fields_;
  std::vector<std::size_t> tensors_;
};

using FieldTable = std::array<std::vector<OpField>, kNumOps + 1>;
using TensorTable = std::array<std::vector<std::size_t>, kNumOps + 1>;

template <class... Params>
FieldTable make_table(TypeList<Params...>) {
  const auto flatten = []<class P>(const P& object) {
    Flattener flattener(&object);
    flattener.add_members("", object);
    return flattener.take();
  };
  return {std::vector<OpField>{}, flatten(Params{})...};
}

template <class... Params>
TensorTable make_tensor_table(TypeList<Params...>) {
  const auto find = []<class P>(const P& object) {
    Flattener flattener(&object);
    flattener.add_members("", object);
    return flattener.take_tensors();
  };
  return {std::vector<std::size_t>{}, find(Params{})...};
}

}  // namespace

std::span<const std::size_t> op_tensors(OpId op) {
  static const TensorTable table = make_tensor_table(OpTypes{});
  const auto index = static_cast<std::size_t>(op);
  return table[index <= kNumOps ? index : 0];
}

std::span<const OpField> op_fields(OpId op) {
  static const FieldTable table = make_table(OpTypes{});
  const auto index = static_cast<std::size_t>(op);
  return table[index <= kNumOps ? index : 0];
}

}  // namespace sluice
