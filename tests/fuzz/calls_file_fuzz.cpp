// Files of calls. Accepted ones are in order, and every call is of a function that there is.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "function_sim/calls_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  static const std::vector<std::string> functions = {"a/poet", "b/demo"};
  const auto calls =
      parse_calls(std::string_view(reinterpret_cast<const char*>(data), size), "calls", functions);
  if (!calls) {
    CHECK(!calls.error().message.empty());
    return 0;
  }
  Duration last{0};
  for (const FunctionCall& call : *calls) {
    CHECK(call.arrival >= last && call.function >= 0 && call.function < 2);
    CHECK(call.prompt_tokens >= 1 && call.prompt_tokens <= kMaxCallTokens);
    CHECK(call.output_tokens >= 1 && call.output_tokens <= kMaxCallTokens);
    last = call.arrival;
  }
  return 0;
}
