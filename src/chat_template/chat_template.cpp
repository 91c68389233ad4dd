#include "chat_template/chat_template.h"

#include <algorithm>
#include <utility>

#include "chat_template/content_analysis.h"
#include "chat_template/interpreter.h"
#include "chat_template/parser.h"

namespace sluice {

ChatTemplate::ChatTemplate(std::string name, std::unique_ptr<const jinja::Template> parsed)
    : name_(std::move(name)), parsed_(std::move(parsed)) {
  const jinja::ContentUses uses = jinja::analyse_content(*parsed_);
  reads_content_parts_ = uses.loops_over_it;
  asks_for_no_content_ = uses.asks_for_none;
}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string name) {
  Result<std::unique_ptr<const jinja::Template>> parsed = jinja::parse_template(source);
  if (!parsed) {
    Error error = std::move(parsed).error();
    error.message.insert(0, "chat template " + name + ", ");
    return error;
  }
  return ChatTemplate(std::move(name), *std::move(parsed));
}

bool ChatTemplate::reads_tools() const {
  return std::ranges::find(parsed_->symbols, "tools") != parsed_->symbols.end();
}

Result<std::string> ChatTemplate::render(const ChatContext& context, const RenderLimits& limits,
                                         const StopCheck* stop) const {
  jinja::Interpreter interpreter(*parsed_, context.variables(), limits, context.now(), stop);
  Result<std::string> text = interpreter.run();
  if (text || interpreter.heap().stopped()) return text;
  Error error = std::move(text).error();
  error.message.insert(0, "chat template " + name_ + ", ");
  return error;
}

}  // namespace sluice
