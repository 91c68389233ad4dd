// The parts that the readers of other dialects than OpenAI's chats share: fields of common meaning,
// and pieces of the chat that they build.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

// Reads model, temperature, top_p and stream.
void read_basic_fields(FieldReader& reader, GenerationCall& call);

// Reads the limit of the length.
void read_output_limit(FieldReader& reader, std::string_view name, GenerationCall& call);

// An entry of ChatPart::tools. `schema` may be null.
JsonValue function_tool(const std::string& name, const JsonValue* description,
                        const JsonValue* schema, const JsonValue* strict);

// An entry of a message's tool_calls.
JsonValue function_call(const std::string& id, const std::string& name, std::string arguments);

// Sets a variable of the chat template.
void set_variable(ChatPart& chat, std::string_view name, JsonValue value);

// The choice {"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]}: `allowed` has
// mode and tools. The others are taken from the tools of the chat. Errors name `field`.
void read_allowed_tools(FieldReader& reader, const std::string& field,
                        const JsonValue::Object& allowed, GenerationCall& call);

// Checks a forced choice (call.tool_choice) against the tools. `field` names it in errors.
void check_tool_choice(FieldReader& reader, std::string_view field, const GenerationCall& call);

}  // namespace sluice
