// Values of the template language: small handles with Python's types. A Value owns nothing: text,
// lists and dicts live in a Heap (heap.h) and are immutable, so copying is 16 bytes and safe as
// long as the heap lives. Strings are UTF-8; positions and lengths the template sees are counted
// in code points. Threads: values of a finished heap may be read from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice::jinja {

enum class Kind : std::uint8_t {
  kMissing,    // an argument that was not given; templates never see it
  kUndefined,  // jinja2's Undefined
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer beyond 64 bits from JSON: kept as its digits, can be printed only
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kObject,  // everything with behaviour: object.h
};

class Object;
struct Dict;
struct UndefinedInfo;

// Markup is a string that `safe` or `escape` has marked; it escapes what is added to it.
enum class StringFlavor : std::uint8_t { kPlain, kMarkup };

class Value {
 public:
  constexpr Value() = default;

  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.payload_.integer = b ? 1 : 0;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v(Kind::kInt);
    v.payload_.integer = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.payload_.real = d;
    return v;
  }
  // The text must outlive the value.
  static Value string(std::string_view text, StringFlavor flavor = StringFlavor::kPlain) {
    Value v(Kind::kString);
    v.payload_.text = text.data();
    v.size_ = static_cast<std::uint32_t>(text.size());
    v.flavor_ = flavor;
    return v;
  }
  static Value big_integer(std::string_view digits) {
    Value v = string(digits);
    v.kind_ = Kind::kBigInt;
    return v;
  }
  static Value list(std::span<const Value> items) { return sequence(Kind::kList, items); }
  static Value tuple(std::span<const Value> items) { return sequence(Kind::kTuple, items); }
  static Value dict(const Dict* d) {
    Value v(Kind::kDict);
    v.payload_.dict = d;
    return v;
  }
  static Value object(Object* o) {
    Value v(Kind::kObject);
    v.payload_.object = o;
    return v;
  }
  static Value undefined(const UndefinedInfo* info) {
    Value v(Kind::kUndefined);
    v.payload_.undefined = info;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_markup() const { return is_string() && flavor_ == StringFlavor::kMarkup; }

  // REQUIRES of each: the value is of that kind.
  bool as_bool() const { return payload_.integer != 0; }
  std::int64_t as_int() const { return payload_.integer; }  // kInt or kBool
  double as_float() const { return payload_.real; }
  std::string_view text() const { return {payload_.text, size_}; }  // kString or kBigInt
  std::span<const Value> items() const { return {payload_.items, size_}; }
  const Dict& as_dict() const { return *payload_.dict; }
  Object* as_object() const { return payload_.object; }
  const UndefinedInfo* as_undefined() const { return payload_.undefined; }
  StringFlavor flavor() const { return flavor_; }

  // Python's `is` for values of the same kind.
  bool same_identity(const Value& other) const {
    return kind_ == other.kind_ && size_ == other.size_ &&
           payload_.integer == other.payload_.integer;
  }

 private:
  explicit constexpr Value(Kind kind) : kind_(kind) {}
  static Value sequence(Kind kind, std::span<const Value> items) {
    Value v(kind);
    v.payload_.items = items.data();
    v.size_ = static_cast<std::uint32_t>(items.size());
    return v;
  }

  union Payload {
    std::int64_t integer = 0;
    double real;
    const char* text;
    const Value* items;
    const Dict* dict;
    Object* object;
    const UndefinedInfo* undefined;
  };
  Payload payload_;
  std::uint32_t size_ = 0;
  Kind kind_ = Kind::kMissing;
  StringFlavor flavor_ = StringFlavor::kPlain;
};
static_assert(sizeof(Value) == 16);

struct DictEntry {
  Value key;
  Value value;
};

// A dict in insertion order; `index` is an open-addressing table of entry numbers + 1, present
// when there are many entries. Built by Heap::make_dict only.
struct Dict {
  std::span<const DictEntry> entries;
  std::span<const std::uint32_t> index;
};

// The reason why a value is undefined; undefined_message() formats it only when it is needed.
struct UndefinedInfo {
  std::string_view hint;  // the whole message, or empty
  Value object;           // kMissing when a name could not be resolved
  Value name;
  std::string_view error_type = "UndefinedError";
};

}  // namespace sluice::jinja
