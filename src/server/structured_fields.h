// The fields that hold an answer to a grammar: OpenAI's `response_format`, vLLM's
// `structured_outputs` and the older `guided_*`, llama.cpp's `grammar` and `json_schema`.
// Pure function; any thread.
#pragma once

#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

inline constexpr std::size_t kMaxGrammarBytes = std::size_t{1} << 20;

// Fills call.structured. Two of these fields in one call are an error. The grammar itself is
// checked when a worker compiles it.
void read_structured_fields(FieldReader& reader, GenerationCall& call);

}  // namespace sluice
