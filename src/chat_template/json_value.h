// Converts JSON, as text or as a parsed tree, to template values. Keys keep their order, a repeated
// key takes the last value, and integers beyond 64 bits keep their digits.
// Pure functions; values live in the heap.
#pragma once

#include <string_view>

#include "base/json_document.h"
#include "base/result.h"
#include "chat_template/heap.h"
#include "chat_template/value.h"

namespace sluice::jinja {

// Parses into `heap`. `what` names the text in errors ("messages", a file). kInvalidArgument for
// invalid JSON or UTF-8, lone surrogates, nesting beyond 150 levels and the heap's limits.
Result<Value> parse_json(std::string_view text, Heap& heap, std::string_view what);

// The same values from a tree. They borrow the tree's strings. Errors: the heap's limits.
// REQUIRES: nesting of at most 150 levels; the tree outlives the values.
Result<Value> from_tree(const JsonValue& tree, Heap& heap, std::string_view what);

}  // namespace sluice::jinja
