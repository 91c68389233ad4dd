// Turns a JSON schema into a Grammar of the JSON texts that are valid for it (docs/structured-
// output.md lists the keywords). Every text of the grammar is valid. Where the grammar is narrower
// than the schema, it is by rules that the page states: the order of properties is the schema's, a
// closed object unless additionalProperties says otherwise, no needless blanks and escapes.
// Keywords that restrict values and are not served are refused by name, never ignored.
// Pure functions; any thread.
#pragma once

#include "base/json_document.h"
#include "base/result.h"
#include "grammar/grammar.h"

namespace sluice {

inline constexpr int kMaxSchemaDepth = 64;
inline constexpr std::size_t kMaxSchemaParts = 100'000;
// The longest name of a property in an object that allows further properties.
inline constexpr std::size_t kMaxNameBytes = 1024;

// Errors: kInvalidArgument, naming the place: "at #/properties/age: ...".
Result<Grammar> json_schema_grammar(const JsonValue& schema);
// Any JSON object.
Grammar json_object_grammar();

}  // namespace sluice
