// The fields of a chat that its template sees: messages, tools and variables, checked and written
// as the JSON texts that templates take. Shared by /v1/chat/completions and /tokenize.
// Pure functions; any thread.
#pragma once

#include <string>

#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

inline constexpr std::size_t kMaxTools = 128;

// Reads messages, chat_template_kwargs, add_generation_prompt and continue_final_message, and
// refuses fields that would need another template.
void read_chat_fields(FieldReader& reader, ChatPart& chat);

// "messages": roles and contents are checked; an array of text parts becomes one text, the parts
// joined by a line break, as vLLM has it for templates of text models; fields that are null or an
// empty list of calls are left out; unknown fields are passed to the template.
void read_messages(FieldReader& reader, std::string& out);

// "tools", as JSON text; empty when there are none.
void read_tools(FieldReader& reader, std::string& out);

}  // namespace sluice
