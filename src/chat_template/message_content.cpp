#include "chat_template/message_content.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {
namespace {

Value with_entry(Heap& heap, Value dict, std::string_view name, Value value) {
  const auto given = dict.as_dict().entries;
  std::vector<DictEntry> entries(given.begin(), given.end());
  entries.push_back({Value::string(name), value});
  return heap.make_dict(entries);
}

// The text of {"type": "text", "text": ".."} or of a plain string.
Result<std::string_view> text_of_part(Value part, const std::string& where) {
  if (part.is_string()) return part.text();
  if (!part.is_dict()) return invalid_argument(where + ": must be an object with type and text");
  const Value* type = find(part.as_dict(), "type");
  if (type == nullptr || !type->is_string() || type->text() != "text") {
    const std::string got =
        type != nullptr && type->is_string() ? quote(type->text().substr(0, 100)) : "none";
    return unsupported(where + ".type: only \"text\" is supported, got " + got);
  }
  const Value* text = find(part.as_dict(), "text");
  if (text == nullptr || !text->is_string()) {
    return invalid_argument(where + ".text: must be a string");
  }
  return text->text();
}

std::string with_text(std::string_view text, std::string_view suffix) {
  return std::string(text).append(suffix);
}

}  // namespace

Value without_nulls(Heap& heap, Value message) {
  const auto given = message.as_dict().entries;
  std::vector<DictEntry> kept;
  std::copy_if(given.begin(), given.end(), std::back_inserter(kept),
               [](const DictEntry& entry) { return !entry.value.is_none(); });
  return kept.size() == given.size() ? message : heap.make_dict(kept);
}

Value with_no_content_as(Heap& heap, Value message, NoContent no_content) {
  if (no_content == NoContent::kNothing) return message;
  if (find(message.as_dict(), "content") != nullptr) return message;
  const bool empty = no_content == NoContent::kEmptyText;
  return with_entry(heap, message, "content", empty ? Value::string("") : Value::none());
}

Result<Value> with_content_as(Heap& heap, Value message, ContentParts parts,
                              const std::string& where) {
  if (parts == ContentParts::kAsGiven) return message;
  const Value* content = find(message.as_dict(), "content");
  if (content == nullptr || !content->is_sequence()) return message;
  std::string joined;
  for (std::size_t i = 0; i < content->items().size(); ++i) {
    const std::string part = where + ".content[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const std::string_view text, text_of_part(content->items()[i], part));
    if (i > 0) joined += '\n';
    joined += text;
  }
  if (parts == ContentParts::kText) return message;
  return with_entry(heap, message, "content", heap.make_string(joined));
}

Result<FinalMessage> with_suffix(Heap& heap, Value message, std::string_view suffix,
                                 const std::string& where) {
  const Value* content = find(message.as_dict(), "content");
  if (content != nullptr && content->is_string()) {
    const Value longer = heap.make_string(with_text(content->text(), suffix));
    return FinalMessage{with_entry(heap, message, "content", longer), content->text()};
  }
  if (content != nullptr && content->is_sequence()) {
    const auto given = content->items();
    std::vector<Value> parts(given.begin(), given.end());
    for (std::size_t i = parts.size(); i-- > 0;) {
      const Value* text = parts[i].is_dict() ? find(parts[i].as_dict(), "text") : nullptr;
      if (text == nullptr || !text->is_string()) continue;
      const Value longer = heap.make_string(with_text(text->text(), suffix));
      parts[i] = with_entry(heap, parts[i], "text", longer);
      return FinalMessage{with_entry(heap, message, "content", heap.make_list(parts)),
                          text->text()};
    }
  }
  return invalid_argument(where + ".content: has no text to continue (continue_final_message)");
}

}  // namespace sluice::jinja
