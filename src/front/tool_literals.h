// Tool calls whose arguments are literals and not JSON: Python's calls, [NAME(KEY=VALUE, ..), ..],
// and Gemma's, call:NAME{KEY:VALUE,..}, in which strings stand between a mark of the model.
// JSON is read wherever a literal may stand, since forced calls have it there.
// Pure functions; any thread. Input may be any text: text that is no call gives none.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "front/tool_format.h"

namespace sluice {

std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text);

// `quote`: the mark at both ends of a string. REQUIRES: it is not empty.
std::optional<ToolCall> read_gemma_call(std::string_view text, std::string_view quote);

}  // namespace sluice
