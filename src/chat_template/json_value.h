// JSON text to template values: order of keys kept, a repeated key takes the last value, integers
// beyond 64 bits keep their digits. Refused: invalid UTF-8, lone surrogates, nesting beyond 150.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "chat_template/heap.h"
#include "chat_template/value.h"

namespace sluice::jinja {

// Parses into `heap`. `what` names the text in errors ("messages", a file).
Result<Value> parse_json(std::string_view text, Heap& heap, std::string_view what);

}  // namespace sluice::jinja
