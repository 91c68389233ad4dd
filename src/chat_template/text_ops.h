// Operations on strings that filters and methods share, within the interpreter's budget.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "chat_template/text.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class Interpreter;

// "'str' object cannot be interpreted as an integer".
Error not_an_integer(Value value);
// str.strip and its sides; `chars` may be kMissing or none.
Result<Value> strip_value(Interpreter& interpreter, Value text, Value chars, Side side);
// str.replace; a negative count means all.
Result<Value> replace_text(Interpreter& interpreter, std::string_view text, std::string_view from,
                           std::string_view to, std::int64_t count);
// str.center (kBoth), rjust (kLeft: the padding is on the left) and ljust (kRight).
Result<Value> pad_text(Interpreter& interpreter, Value text, Value width, Value fill, Side side);
// "a.b.0" from an item, as the `attribute` arguments of filters go; an undefined step becomes
// `otherwise` unless that is kMissing.
Result<Value> attribute_path(Interpreter& interpreter, Value item, Value path, Value otherwise);

}  // namespace sluice::jinja
