#include "server/prompt_fields.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace sluice {
namespace {

void read_token_prompt(FieldReader& reader, const JsonValue::Array& ids, const std::string& where,
                       std::vector<CompletionPrompt>& out) {
  if (ids.empty()) {
    reader.bad(where, "is empty; expected at least one token id");
    return;
  }
  if (auto tokens = reader.token_ids_in(ids, where)) out.emplace_back(*std::move(tokens));
}

// Several prompts: all texts, or all arrays of ids; the first one says which.
void read_several(FieldReader& reader, std::string_view field, std::size_t most,
                  const JsonValue::Array& items, std::vector<CompletionPrompt>& out) {
  if (items.size() > most) {
    reader.bad(field, fmt::format("got {} prompts; at most {} are served in one call", items.size(),
                                  most));
    return;
  }
  const bool texts = items.front().string() != nullptr;
  for (std::size_t i = 0; i < items.size() && !reader.failed(); ++i) {
    const std::string where = fmt::format("{}[{}]", field, i);
    if (texts && items[i].string() != nullptr) {
      out.emplace_back(*items[i].string());
    } else if (!texts && items[i].array() != nullptr) {
      read_token_prompt(reader, *items[i].array(), where, out);
    } else {
      reader.mistyped(where, items[i],
                      texts ? "a string, as the first prompt is" : "an array of token ids");
    }
  }
}

}  // namespace

void read_prompts(FieldReader& reader, std::string_view field, std::size_t most,
                  std::vector<CompletionPrompt>& out) {
  const JsonValue* value = reader.find(field);
  if (value == nullptr) {
    if (!reader.failed()) {
      reader.missing(field, "a string, an array of token ids, or an array of either");
    }
    return;
  }
  if (const std::string* text = value->string()) {
    out.emplace_back(*text);
    return;
  }
  const JsonValue::Array* items = value->array();
  if (items == nullptr) {
    reader.mistyped(field, *value, "a string, an array of token ids, or an array of either");
  } else if (items->empty()) {
    reader.bad(field, "is an empty array; expected at least one prompt");
  } else if (items->front().string() != nullptr || items->front().array() != nullptr) {
    read_several(reader, field, most, *items, out);
  } else {
    read_token_prompt(reader, *items, std::string(field), out);
  }
}

}  // namespace sluice
