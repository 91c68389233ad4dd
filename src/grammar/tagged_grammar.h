// TaggedAnswer: an answer in which values of JSON schemas stand between fixed marks, such as calls
// of tools in the format of a model; with free text in front of them, if wanted.
// Values: plain; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/json_document.h"
#include "base/result.h"
#include "grammar/grammar.h"

namespace sluice {

// The marks of an object that is written as pairs instead of as JSON. Values of type string stand
// without quotes; all others are JSON.
struct PairMarks {
  std::string before_key;
  std::string behind_key_of_text;
  std::string behind_key_of_json;
  std::string behind_json;  // in front of value_end
  std::string value_end;
  std::string behind_value;  // in front of the next pair
};

// A value that a part holds. `name` is the place of its schema for errors.
struct TaggedValue {
  std::string name;
  JsonValue schema;
  std::optional<PairMarks> pairs;  // absent: JSON
};

struct TaggedPart {
  std::string before;
  std::size_t value = 0;  // index in TaggedAnswer::values
  std::string behind;
};

// open, a part, any number of times (between, a part), close.
struct TaggedForm {
  std::string open;
  std::vector<TaggedPart> parts;
  std::optional<std::string> between;  // absent: there is exactly one part
  std::string close;
};

// All marks are bytes of tokens; those of special tokens begin with kSpecialTokenMark.
struct TaggedAnswer {
  bool text_allowed = false;  // in front of the trigger, or instead of all
  std::string trigger;        // of all forms; empty: text that does not begin with '{' is free
  std::vector<TaggedValue> values;
  std::vector<TaggedForm> forms;
};

// Errors: those of json_schema_grammar(), with the value's name; a schema that pairs cannot hold.
Result<Grammar> tagged_grammar(const TaggedAnswer& answer);

}  // namespace sluice
