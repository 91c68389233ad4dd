#include "front/tool_detection.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "front/chat_prompt.h"
#include "front/tool_call_stream.h"

namespace sluice {
namespace {

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"probe_tool","description":"probe",)"
    R"("parameters":{"type":"object","properties":{"text":{"type":"string","description":"t"},)"
    R"("number":{"type":"integer","description":"n"}},"required":["text"]}}}])";
constexpr std::string_view kQuestion = "probe question";
constexpr std::string_view kUser = R"({"role":"user","content":"probe question"})";
// Some templates want an id of nine characters.
constexpr std::string_view kCall =
    R"({"role":"assistant","content":"","tool_calls":[{"id":"probe1234","type":"function",)"
    R"("function":{"name":"probe_tool","arguments":"{\"text\":\"a \\\"b\\\"\",\"number\":3}"}}]})";
// Some templates print a call only with its result.
constexpr std::string_view kResult =
    R"({"role":"tool","tool_call_id":"probe1234","name":"probe_tool","content":"probe result"})";

// Some templates print the arguments in another order.
bool is_expected(const ToolCall& call) {
  return call.name == "probe_tool" && (call.arguments == R"({"text":"a \"b\"","number":3})" ||
                                       call.arguments == R"({"number":3,"text":"a \"b\""})");
}

std::optional<std::string> render(const ChatTemplates& templates, const std::string& messages,
                                  ToolArguments arguments, bool add_generation_prompt) {
  ChatParts parts;
  parts.messages_json = messages;
  parts.tools_json = kTools;
  parts.add_generation_prompt = add_generation_prompt;
  parts.tool_arguments = arguments;
  parts.content_parts = ContentParts::kJoinedText;
  auto text = render_chat(templates, parts, std::chrono::local_seconds{});
  if (!text) return std::nullopt;
  return *std::move(text);
}

bool reads_back(const ToolFormat& format, std::string_view answer,
                const ToolParameters& parameters) {
  ToolCallStream stream(format, parameters);
  std::string content;
  std::vector<ToolCall> calls;
  stream.push(answer, content, calls);
  stream.finish(TextEnd::kComplete, content, calls);
  return calls.size() == 1 && is_expected(calls.front());
}

// Behind the call a template prints what ends a turn. A format without an end marker would read
// that too, so the text is tried up to each bracket.
bool reads_front_of(const ToolFormat& format, std::string_view answer,
                    const ToolParameters& parameters) {
  if (!format.end.empty()) return reads_back(format, answer, parameters);
  for (std::size_t at = answer.find_last_of("}]"); at != std::string_view::npos && at > 0;
       at = answer.find_last_of("}]", at - 1)) {
    if (reads_back(format, answer.substr(0, at + 1), parameters)) return true;
  }
  return false;
}

// The answer with the call: behind the question, with the header of the turn; and, for formats
// without markers, behind the generation prompt.
struct Printed {
  std::string text;
  std::size_t behind_question = 0;
  std::optional<std::size_t> behind_prompt;
};

std::optional<Printed> print_call(const ChatTemplates& templates, ToolArguments arguments,
                                  bool with_result) {
  const std::string user(kUser);
  std::string messages = "[" + user + "," + std::string(kCall);
  if (with_result) messages += "," + std::string(kResult);
  const auto text = render(templates, messages + "]", arguments, false);
  if (!text) return std::nullopt;
  Printed printed{*text, 0, std::nullopt};
  const std::size_t question = text->rfind(kQuestion);
  if (question == std::string::npos) return std::nullopt;
  printed.behind_question = question + kQuestion.size();
  const auto prompt = render(templates, "[" + user + "]", arguments, true);
  if (prompt && text->starts_with(*prompt)) printed.behind_prompt = prompt->size();
  return printed;
}

const ToolFormat* format_of(const Printed& printed, const ToolParameters& parameters) {
  const std::string_view text = printed.text;
  for (const ToolFormat& format : tool_formats()) {
    const bool whole = format.begin.empty();
    if (whole && !printed.behind_prompt) continue;
    const std::size_t from = whole ? *printed.behind_prompt : printed.behind_question;
    if (reads_front_of(format, text.substr(from), parameters)) return &format;
  }
  return nullptr;
}

}  // namespace

const ToolFormat* detect_tool_format(const ChatTemplates& templates) {
  const auto chosen = templates.choose(ToolsGiven::kYes);
  if (!chosen || !(*chosen)->reads_tools()) return nullptr;
  const ToolParameters parameters = ToolParameters::from_json(kTools);
  for (const ToolArguments arguments : {ToolArguments::kParsed, ToolArguments::kAsGiven}) {
    for (const bool with_result : {false, true}) {
      const auto printed = print_call(templates, arguments, with_result);
      if (!printed) continue;
      if (const ToolFormat* format = format_of(*printed, parameters)) return format;
    }
  }
  return nullptr;
}

}  // namespace sluice
