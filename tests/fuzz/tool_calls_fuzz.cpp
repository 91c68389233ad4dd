// Answers with tool calls, in any format and in any pieces. The calls do not depend on the pieces,
// their arguments are JSON objects, and text without a call comes out unchanged. At most
// the last call is incomplete when the limit of tokens cut the answer.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "front/tool_call_stream.h"
#include "front/tool_format.h"

namespace {

struct Split {
  std::string content;
  std::vector<sluice::ToolCall> calls;
};

Split split(const sluice::ToolFormat& format, std::string_view answer, std::size_t piece,
            sluice::TextEnd end) {
  static const sluice::ToolParameters kParameters = sluice::ToolParameters::from_json(
      R"([{"function":{"name":"f","parameters":{"properties":{"a":{"type":"string"}}}}}])");
  sluice::ToolCallStream stream(format, kParameters);
  Split out;
  for (std::size_t at = 0; at < answer.size(); at += piece) {
    stream.push(answer.substr(at, piece), out.content, out.calls);
  }
  stream.finish(end, out.content, out.calls);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto formats = sluice::tool_formats();
  const sluice::ToolFormat& format = formats[data[0] % formats.size()];
  const std::size_t piece = 1 + data[1] % 16;
  const std::string_view answer(reinterpret_cast<const char*>(data) + 2, size - 2);
  constexpr auto kComplete = sluice::TextEnd::kComplete;
  const std::size_t all = std::max<std::size_t>(answer.size(), 1);
  const Split whole = split(format, answer, all, kComplete);
  const Split pieces = split(format, answer, piece, kComplete);
  CHECK(whole.calls == pieces.calls);
  CHECK(whole.content == pieces.content);
  for (const sluice::ToolCall& call : whole.calls) {
    CHECK(!call.name.empty());
    CHECK(sluice::parse_json(call.arguments).is_object());
  }
  const Split cut = split(format, answer, all, sluice::TextEnd::kCut);
  CHECK(cut.calls == split(format, answer, piece, sluice::TextEnd::kCut).calls);
  for (std::size_t i = 0; i < cut.calls.size(); ++i) {
    const sluice::ToolCall& call = cut.calls[i];
    CHECK(!call.name.empty());
    CHECK(call.cut ? i + 1 == cut.calls.size() : sluice::parse_json(call.arguments).is_object());
  }
  const bool has_marker = format.begin.empty() ||
                          answer.find(format.begin) != std::string_view::npos ||
                          std::ranges::any_of(format.dropped, [&](std::string_view marker) {
                            return answer.find(marker) != std::string_view::npos;
                          });
  const bool has_text_mark = format.prompt_has_begin && answer.starts_with(format.text_begin);
  const std::string_view text = has_text_mark ? answer.substr(format.text_begin.size()) : answer;
  if (!has_marker && whole.calls.empty()) CHECK(whole.content == text);
  return 0;
}
