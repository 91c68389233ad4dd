// ChatTemplate: a Jinja template with the rules of transformers (jinja2 3.1, immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now, tojson without HTML
// escapes). Immutable after parse; any thread may render. See docs/chat-templates.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/stop_check.h"
#include "chat_template/chat_context.h"
#include "chat_template/limits.h"

namespace sluice {

namespace jinja {
struct Template;
}

class ChatTemplate {
 public:
  // `name` is the file or field the text came from, for errors: "NAME, line 3: what is wrong".
  static Result<ChatTemplate> parse(std::string_view source, std::string name);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // invalid_argument when the template refuses the context (raise_exception), uses it in a way that
  // Python does not allow, or exceeds a limit. Returns the error of `stop`, which may be null,
  // unchanged.
  Result<std::string> render(const ChatContext& context, const RenderLimits& limits = {},
                             const StopCheck* stop = nullptr) const;

  const std::string& name() const { return name_; }

  // Whether the template loops over the parts of a message's content. If not, content must be one
  // text.
  bool reads_content_parts() const { return reads_content_parts_; }
  // Whether the template tests if a message's content is none. If not, a message without content
  // must get an empty text.
  bool asks_for_no_content() const { return asks_for_no_content_; }
  // Whether the template names the variable `tools`. If not, the model never sees tools.
  bool reads_tools() const;

 private:
  ChatTemplate(std::string name, std::unique_ptr<const jinja::Template> parsed);

  std::string name_;
  std::unique_ptr<const jinja::Template> parsed_;
  bool reads_content_parts_ = false;
  bool asks_for_no_content_ = false;
};

}  // namespace sluice
