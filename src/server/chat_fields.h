// The fields of a chat that its template sees: messages, tools and variables. They are checked and
// moved out of the request's body, without a copy. Shared by /v1/chat/completions and /tokenize.
// `reader` reads `body`; it has the error if a field is invalid.
// Pure functions; any thread.
#pragma once

#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

inline constexpr std::size_t kMaxTools = 128;

// Reads messages, chat_template_kwargs, add_generation_prompt and continue_final_message, and
// refuses fields that would need another template.
void read_chat_fields(FieldReader& reader, JsonValue::Object& body, ChatPart& chat);

// "messages": checks roles and contents. Removes fields that are null (but not content) and empty
// lists of calls. Unknown fields are passed to the template.
void read_messages(FieldReader& reader, JsonValue::Object& body, JsonValue& out);

// "tools"; null when there are none.
void read_tools(FieldReader& reader, JsonValue::Object& body, JsonValue& out);

}  // namespace sluice
