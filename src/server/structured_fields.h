// The fields that hold an answer to a grammar: OpenAI's `response_format`, vLLM's
// `structured_outputs` and the older `guided_*`, llama.cpp's `grammar` and `json_schema`.
// Pure functions; any thread.
#pragma once

#include <string>

#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

inline constexpr std::size_t kMaxGrammarBytes = std::size_t{1} << 20;

// Fills call.structured. Two of these fields in one call are an error. The grammar itself is
// checked when a worker compiles it.
void read_structured_fields(FieldReader& reader, GenerationCall& call);

// Holds the answer to a schema, or to any JSON object, that another field asks for.
void set_json_schema(FieldReader& reader, GenerationCall& call, std::string field,
                     const JsonValue& schema);
void set_json_object(FieldReader& reader, GenerationCall& call, std::string field);

}  // namespace sluice
