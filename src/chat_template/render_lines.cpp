// A filter for comparisons with jinja2 (tools/compare_templates.py): one JSON object per line in,
//   {"template": "...", "context": "{...}", "now": 1721952000}
// and one per line out, {"text": "..."} or {"error": "..."}. "context" is JSON text, "now" local
// time in seconds.
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "chat_template/chat_template.h"

namespace {

using nlohmann::ordered_json;

// Caches parsed templates: each comes once with every context.
class Renderer {
 public:
  sluice::Result<std::string> render(const ordered_json& request) {
    const auto source = request.at("template").get<std::string>();
    auto found = parsed_.find(source);
    if (found == parsed_.end()) {
      found = parsed_.emplace(source, sluice::ChatTemplate::parse(source, "line")).first;
    }
    if (!found->second) return found->second.error();
    const std::chrono::local_seconds now(
        std::chrono::seconds(request.value("now", std::int64_t{0})));
    ASSIGN_OR_RETURN(const sluice::ChatContext context,
                     sluice::ChatContext::from_json(request.at("context").get<std::string>(), now));
    return found->second->render(context);
  }

 private:
  std::map<std::string, sluice::Result<sluice::ChatTemplate>> parsed_;
};

}  // namespace

int main() {
  Renderer renderer;
  std::string line;
  while (std::getline(std::cin, line)) {
    ordered_json reply;
    try {
      const sluice::Result<std::string> text = renderer.render(sluice::parse_ordered_json(line));
      if (text) {
        reply["text"] = *text;
      } else {
        reply["error"] = text.error().message;
      }
    } catch (const nlohmann::json::exception& e) {
      // tidy: allow(iostream) this is a command line filter
      std::cerr << "chat_template_render: bad input line: " << e.what() << "\n";
      return 2;
    }
    // tidy: allow(iostream) this is a command line filter
    std::cout << sluice::dump_json(reply) << "\n";
  }
  return 0;
}
