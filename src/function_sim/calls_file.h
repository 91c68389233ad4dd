// Files of calls: CSV with the header "seconds,function,prompt_tokens,output_tokens", one call a
// line, in order of time. A function is "TENANT/NAME", as in the functions file. So the same calls
// can be simulated, and sent to a gateway.
// Pure; any thread. Errors name path and line. Limit: kMaxCallsBytes.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "function_sim/function_calls.h"

namespace sluice {

inline constexpr std::size_t kMaxCallsBytes = std::size_t{256} << 20;
inline constexpr std::int32_t kMaxCallTokens = 1'000'000;

// `functions`: the names, by number.
Result<std::vector<FunctionCall>> parse_calls(std::string_view text, std::string_view path,
                                              std::span<const std::string> functions);

}  // namespace sluice
