// json.dumps as transformers' `tojson` filter calls it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "chat_template/heap.h"
#include "chat_template/value.h"

namespace sluice::jinja {

struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string_view indent;  // of one level, when has_indent
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};

// A TypeError for values that JSON cannot express.
Result<Value> dump_json(Heap& heap, Value value, const JsonStyle& style);

}  // namespace sluice::jinja
