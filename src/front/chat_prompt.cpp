#include "front/chat_prompt.h"

#include <fmt/format.h>

#include "chat_template/text.h"

namespace sluice {
namespace {

// Appended to the final message's text while the template runs. It shows where the text is in the
// output; the text alone might occur again later. The space shows whether the template trims.
constexpr std::string_view kEndMark = "\uFDD0end-of-final-message\uFDD1 ";

// The prompt up to the end of the final message, trimmed if the template trims it.
Result<std::string> cut_after_final_text(std::string text, std::string_view final_text) {
  const std::string_view word = kEndMark.substr(0, kEndMark.size() - 1);
  const std::size_t mark = text.rfind(word);
  const std::string_view trimmed = jinja::strip_space(final_text, jinja::Side::kBoth);
  if (mark == std::string::npos || text.find(trimmed) == std::string::npos) {
    return invalid_argument(
        "continue_final_message: the chat template does not print the final message as it is; "
        "leave continue_final_message out");
  }
  const bool spacing_kept = text.compare(mark, kEndMark.size(), kEndMark) == 0;
  text.resize(mark);
  if (!spacing_kept) text.resize(jinja::strip_space(text, jinja::Side::kRight).size());
  return text;
}

}  // namespace

Result<std::string> render_chat(const ChatTemplates& templates, const ChatParts& parts,
                                std::chrono::local_seconds now, const StopCheck* stop) {
  if (parts.continue_final_message && parts.add_generation_prompt) {
    return invalid_argument(
        "continue_final_message and add_generation_prompt exclude each other: the prompt either "
        "ends inside the final message or after it");
  }
  ASSIGN_OR_RETURN(
      const ChatTemplate* chat_template,
      templates.choose(is_given(parts.tools_json) ? ToolsGiven::kYes : ToolsGiven::kNo));
  ChatInput input;
  input.messages_json = parts.messages_json;
  input.tools_json = parts.tools_json;
  input.extra_json = parts.extra_json;
  input.add_generation_prompt = parts.add_generation_prompt;
  input.tool_arguments = parts.tool_arguments;
  input.content_parts = parts.content_parts;
  if (input.content_parts == ContentParts::kJoinedText && chat_template->reads_content_parts()) {
    input.content_parts = ContentParts::kText;
  }
  if (input.content_parts != ContentParts::kAsGiven) {
    input.no_content =
        chat_template->asks_for_no_content() ? NoContent::kNone : NoContent::kEmptyText;
  }
  if (parts.continue_final_message) input.final_text_suffix = kEndMark;
  input.special_tokens = templates.special_tokens();
  input.now = now;
  input.stop = stop;
  ASSIGN_OR_RETURN(const ChatContext context, ChatContext::from_chat(input));
  auto text = chat_template->render(context, {}, stop);
  if (!text || !parts.continue_final_message) return text;
  return cut_after_final_text(*std::move(text), context.final_text());
}

}  // namespace sluice
