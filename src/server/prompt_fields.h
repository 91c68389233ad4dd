// The field of a call that holds its prompts: text, token ids, or several of either.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "server/field_reader.h"
#include "server/generation_call.h"

namespace sluice {

// Reads a string, an array of token ids, or an array of at most `most` of either; missing is an
// error. Errors name the field and the place in it.
void read_prompts(FieldReader& reader, std::string_view field, std::size_t most,
                  std::vector<CompletionPrompt>& out);

}  // namespace sluice
