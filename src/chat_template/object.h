// Values with behaviour: ranges, dict views, generators, namespaces, loops, macros, functions.
// Objects belong to a Heap and live as long as it does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class Interpreter;

enum class ObjectType : std::uint8_t {
  kRange,
  kDictView,
  kIterator,
  kNamespace,
  kLoop,
  kCallable,
  kScope,
  kOther,
};

class Object {
 public:
  explicit Object(ObjectType type) : type_(type) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectType type() const { return type_; }
  virtual std::string_view type_name() const = 0;
  // Python's repr(), for objects whose repr() is stable.
  virtual std::string describe() const { return "<" + std::string(type_name()) + ">"; }

 private:
  ObjectType type_;
};

class Range final : public Object {
 public:
  Range(std::int64_t first, std::int64_t end, std::int64_t stride)
      : Object(ObjectType::kRange), start(first), stop(end), step(stride) {}
  std::string_view type_name() const override { return "range"; }
  std::int64_t size() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
  std::int64_t at(std::int64_t i) const { return start + i * step; }

  const std::int64_t start;
  const std::int64_t stop;
  const std::int64_t step;
};

class DictView final : public Object {
 public:
  enum class Part : std::uint8_t { kKeys, kValues, kItems };
  DictView(const Dict& viewed, Part which)
      : Object(ObjectType::kDictView), dict(&viewed), part(which) {}
  std::string_view type_name() const override {
    return part == Part::kKeys ? "dict_keys" : part == Part::kValues ? "dict_values" : "dict_items";
  }

  const Dict* const dict;
  const Part part;
};

// A one-shot source of values, as Python's generators and iterators are.
class Iterator : public Object {
 public:
  explicit Iterator(std::string_view type_name)
      : Object(ObjectType::kIterator), type_name_(type_name) {}
  std::string_view type_name() const final { return type_name_; }
  // False at the end; `out` is then unchanged.
  virtual Result<bool> next(Interpreter& interpreter, Value* out) = 0;

 private:
  std::string_view type_name_;
};

class Namespace final : public Object {
 public:
  Namespace() : Object(ObjectType::kNamespace) {}
  std::string_view type_name() const override { return "TemplateNamespace"; }
  const Value* find(std::string_view name) const {
    for (const auto& [key, value] : attributes) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    for (auto& [key, old] : attributes) {
      if (key == name) {
        old = value;
        return;
      }
    }
    attributes.emplace_back(name, value);
  }

  std::vector<std::pair<std::string_view, Value>> attributes;
};

using KeywordArg = std::pair<std::string_view, Value>;
struct CallArgs {
  std::span<const Value> positional;
  std::span<const KeywordArg> keyword;
};

class Callable : public Object {
 public:
  explicit Callable(std::string_view type_name)
      : Object(ObjectType::kCallable), type_name_(type_name) {}
  std::string_view type_name() const final { return type_name_; }
  virtual Result<Value> call(Interpreter& interpreter, const CallArgs& args) = 0;
  // Attributes a template may read (macro.name, ...); kMissing when there is none.
  virtual Value attribute(std::string_view) const { return Value(); }

 private:
  std::string_view type_name_;
};

}  // namespace sluice::jinja
