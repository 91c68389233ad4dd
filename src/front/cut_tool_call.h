// Reads tool calls from an answer that the limit of tokens cut inside of a call. The last call may
// be incomplete: its arguments are the beginning of a JSON object then. Bodies in JSON keep all
// that the model wrote; other bodies keep the arguments that are complete. Pure function; any
// thread. Input may be any text. Linear time.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "front/tool_format.h"

namespace sluice {

// The calls in `body`, the text behind `begin`. Nothing when the name of the first call is not
// complete, or when an incomplete call names no tool of the request.
std::optional<std::vector<ToolCall>> parse_cut_tool_body(const ToolFormat& format,
                                                         std::string_view body,
                                                         const ToolParameters& parameters);

}  // namespace sluice
