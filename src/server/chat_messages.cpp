#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/chat_fields.h"

namespace sluice {
namespace {

// Checks one message: `where` names it in errors, and the reader keeps the first error.
class MessageReader {
 public:
  MessageReader(FieldReader& reader, std::string where, JsonValue::Object& message)
      : reader_(reader), where_(std::move(where)), message_(message) {}

  // Moves the fields that the template sees out of the message.
  JsonValue::Object take() {
    check_role();
    check_content();
    check_tool_calls();
    refuse_parts_that_are_not_text();
    JsonValue::Object kept;
    if (reader_.failed()) return kept;
    for (JsonMember& member : message_) {
      // If a name appears twice, the last value is used.
      if (find_member(message_, member.name) != &member.value || left_out(member)) continue;
      kept.push_back(std::move(member));
    }
    return kept;
  }

 private:
  const JsonValue* given(std::string_view name) const {
    const JsonValue* value = find_member(message_, name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  std::string path(std::string_view name) const { return fmt::format("{}.{}", where_, name); }

  void bad(std::string_view name, std::string_view message) { reader_.bad(path(name), message); }
  void mistyped(std::string_view name, const JsonValue& value, std::string_view expected) {
    reader_.mistyped(path(name), value, expected);
  }
  void unsupported(std::string_view name, std::string_view message) {
    reader_.unsupported(path(name), message);
  }

  void check_role() {
    const JsonValue* role = given("role");
    if (role == nullptr) {
      bad("role", "is missing; expected \"system\", \"user\", \"assistant\" or \"tool\"");
    } else if (role->string() == nullptr || role->string()->empty()) {
      mistyped("role", *role, "a role such as \"user\"");
    } else {
      role_ = *role->string();
    }
  }

  bool has_tool_calls() const {
    const JsonValue* calls = given("tool_calls");
    return calls != nullptr && (calls->array() == nullptr || !calls->array()->empty());
  }

  void check_content() {
    const JsonValue* content = given("content");
    if (content == nullptr) {
      // A template would print "None" or nothing at all.
      if (role_ == "assistant" && has_tool_calls()) return;
      const bool null = find_member(message_, "content") != nullptr;
      bad("content", fmt::format("is {}; expected a string or an array of text parts (only an "
                                 "assistant's message with tool_calls goes without)",
                                 null ? "null" : "missing"));
      return;
    }
    if (content->string() != nullptr) return;
    const JsonValue::Array* parts = content->array();
    if (parts == nullptr) {
      mistyped("content", *content,
               R"(a string, or an array of {"type": "text", "text": ...} parts)");
      return;
    }
    if (parts->empty()) bad("content", "is an empty array; expected at least one text part");
    for (std::size_t i = 0; i < parts->size() && !reader_.failed(); ++i) {
      check_part((*parts)[i], fmt::format("content[{}]", i));
    }
  }

  void check_part(const JsonValue& value, const std::string& name) {
    const JsonValue::Object* part = value.object();
    if (part == nullptr) {
      mistyped(name, value, R"({"type": "text", "text": ...})");
      return;
    }
    const JsonValue* type = find_member(*part, "type");
    if (type == nullptr || type->string() == nullptr) {
      bad(name + ".type", "is missing; expected \"text\"");
      return;
    }
    if (*type->string() != "text") {
      unsupported(name + ".type", fmt::format("got {}; only \"text\" parts are served, this model "
                                              "reads no images, sound or files",
                                              shown_value(*type)));
      return;
    }
    const JsonValue* text = find_member(*part, "text");
    if (text == nullptr || text->string() == nullptr) {
      bad(name + ".text", fmt::format("is {}; expected a string",
                                      text == nullptr ? "missing" : shown_value(*text)));
    }
  }

  void check_tool_calls() {
    const JsonValue* value = given("tool_calls");
    if (value == nullptr) return;
    const JsonValue::Array* calls = value->array();
    if (calls == nullptr) {
      mistyped("tool_calls", *value, "an array of calls");
      return;
    }
    for (std::size_t i = 0; i < calls->size() && !reader_.failed(); ++i) {
      check_tool_call((*calls)[i], fmt::format("tool_calls[{}]", i));
    }
  }

  void check_tool_call(const JsonValue& value, const std::string& name) {
    const JsonValue::Object* call = value.object();
    if (call == nullptr) {
      mistyped(name, value, "an object");
      return;
    }
    const JsonValue* type = find_member(*call, "type");
    if (type != nullptr && !(type->string() != nullptr && *type->string() == "function")) {
      unsupported(name + ".type",
                  fmt::format("got {}; only \"function\" is served", shown_value(*type)));
      return;
    }
    const JsonValue* function = find_member(*call, "function");
    if (function == nullptr || function->object() == nullptr) {
      bad(name + ".function", "is missing; expected {\"name\": ..., \"arguments\": ...}");
      return;
    }
    const JsonValue* function_name = find_member(*function->object(), "name");
    if (function_name == nullptr || function_name->string() == nullptr) {
      bad(name + ".function.name", "is missing; expected a string");
    }
  }

  void refuse_parts_that_are_not_text() {
    if (given("function_call") != nullptr) {
      unsupported("function_call", "is not served; use tool_calls");
    }
    if (given("audio") != nullptr) unsupported("audio", "is not served; send the text");
    if (given("refusal") != nullptr) unsupported("refusal", "is not served; send it as content");
  }

  static bool left_out(const JsonMember& member) {
    // That there is none is left to the template.
    if (member.value.is_null()) return member.name != "content";
    const JsonValue::Array* array = member.value.array();
    constexpr std::array<std::string_view, 2> kLists = {"tool_calls", "annotations"};
    return array != nullptr && array->empty() &&
           std::ranges::find(kLists, member.name) != kLists.end();
  }

  FieldReader& reader_;
  std::string where_;
  JsonValue::Object& message_;
  std::string role_;
};

// find_member is a linear search; the limit keeps a hostile message from making the check
// quadratic.
constexpr std::size_t kMaxMessageFields = 64;

}  // namespace

void read_messages(FieldReader& reader, JsonValue::Object& body, JsonValue& out) {
  if (reader.array("messages") == nullptr) {
    if (!reader.failed()) reader.missing("messages", "a non-empty array of messages");
    return;
  }
  JsonValue* value = find_member(body, "messages");
  JsonValue::Array* messages = value->array();
  if (messages->empty()) {
    reader.bad("messages", "is empty; expected at least one message");
    return;
  }
  for (std::size_t i = 0; i < messages->size() && !reader.failed(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    JsonValue::Object* message = (*messages)[i].object();
    if (message == nullptr || message->size() > kMaxMessageFields) {
      const std::string got = message == nullptr ? shown_value((*messages)[i])
                                                 : fmt::format("{} fields", message->size());
      reader.bad(where, fmt::format("got {}; expected an object with role and content (at most {} "
                                    "fields)",
                                    got, kMaxMessageFields));
      return;
    }
    *message = MessageReader(reader, where, *message).take();
  }
  out = std::move(*value);
}

}  // namespace sluice
