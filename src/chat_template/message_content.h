// Converts the content of one message, an array of parts or none, to a form that the template can
// use. Pure functions; values live in the heap.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "chat_template/chat_context.h"
#include "chat_template/heap.h"
#include "chat_template/value.h"

namespace sluice::jinja {

// The message without null fields: templates test whether a field is defined.
// REQUIRES: `message` is a dict, here and below.
Value without_nulls(Heap& heap, Value message);

// The message with a substitute for its content, if it has none.
Value with_no_content_as(Heap& heap, Value message, NoContent no_content);

// The message with its content in the wanted form. `where` names the message in errors.
Result<Value> with_content_as(Heap& heap, Value message, ContentParts parts,
                              const std::string& where);

// The message with `suffix` appended to the text of its content, or to the last part that has text.
struct FinalMessage {
  Value message;
  std::string_view text;  // before the suffix
};
Result<FinalMessage> with_suffix(Heap& heap, Value message, std::string_view suffix,
                                 const std::string& where);

}  // namespace sluice::jinja
