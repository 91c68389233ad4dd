// JSON schemas of any bytes: they are refused with a reason, or compiled in bounded time into a
// grammar whose masks agree with its single tokens. The first bytes choose the tokens to follow.
#include "grammar/json_schema.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/request_json.h"
#include "tests/fuzz/grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::size_t choices = std::min<std::size_t>(size, 8);
  const std::string_view text(reinterpret_cast<const char*>(data) + choices, size - choices);
  const auto schema = sluice::read_json_or_explain(text);
  if (!schema) return 0;
  sluice::follow_grammar(sluice::json_schema_grammar(*schema), {data, choices});
  return 0;
}
