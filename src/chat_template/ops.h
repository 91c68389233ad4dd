// Python's operators on values: truth, equality, order, arithmetic, str() and repr(), lookup.
// Errors carry the name Python gives them ("TypeError: ..."). Work and memory count against the
// heap; past its budget results are cut short and Heap::exceeded() says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat_template/heap.h"
#include "chat_template/value.h"

namespace sluice::jinja {

// "TypeError: message" as an invalid_argument error.
Error python_error(std::string_view type, std::string_view message);
inline Error type_error(std::string_view message) { return python_error("TypeError", message); }

std::string undefined_message(const UndefinedInfo& info);
// REQUIRES: value.is_undefined().
Error undefined_error(Value value);

// "str", "NoneType", ...: type(x).__name__.
std::string_view type_name(Value value);
bool is_truthy(Value value);
// Objects whose length Python's len() gives; -1 for others.
std::int64_t length_of(Heap& heap, Value value);

bool is_hashable(Value value);
std::size_t hash_value(Value key);
// Equality of hashable values, without a budget.
bool keys_equal(Value a, Value b);
bool equals(Heap& heap, Value a, Value b);

enum class Order : std::uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };
Result<bool> compare(Heap& heap, Order order, Value a, Value b);

const Value* find(const Dict& dict, Value key);
const Value* find(const Dict& dict, std::string_view key);

// Appends str(value).
void append_text(Heap& heap, TextBuilder& out, Value value);
// str(value) as a string in the heap; a string is returned as it is.
std::string_view to_text(Heap& heap, Value value);
std::string to_repr(Heap& heap, Value value);
std::string escape_html(std::string_view text);

enum class Arithmetic : std::uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
// `%` on strings is format_percent (format.h).
Result<Value> arithmetic(Heap& heap, Arithmetic op, Value a, Value b);
Result<Value> negate(Value value);

// value[start:stop:step]; kMissing or none means not given.
Result<Value> slice(Heap& heap, Value value, Value start, Value stop, Value step);
// value[index] for strings, sequences and ranges; kMissing when Python raises
// TypeError or LookupError.
Value item_at(Heap& heap, Value value, Value index);

}  // namespace sluice::jinja
