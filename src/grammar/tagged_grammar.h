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
// without quotes, unless `text_end` is empty; all others are JSON.
struct PairMarks {
  std::string before_key;
  std::string behind_key_of_text;
  std::string behind_key_of_json;
  std::string text_end;        // the first one ends a free text
  std::string known_text_end;  // behind a text that the schema lists
  std::string json_end;
  std::string behind_value;  // behind each pair
  std::string between;       // two pairs
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
  std::string text_begin;     // may stand in front of a text without the trigger
  std::string trigger;        // of all forms; empty: text that has text_begin, or begins
                              // unlike all calls, is free
  std::vector<TaggedValue> values;
  std::vector<TaggedForm> forms;
};

// Errors: those of json_schema_grammar(), with the value's name; a schema that pairs cannot hold.
Result<Grammar> tagged_grammar(const TaggedAnswer& answer);

}  // namespace sluice
