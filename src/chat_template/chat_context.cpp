#include "chat_template/chat_context.h"

#include <ctime>
#include <limits>

#include "chat_template/heap.h"
#include "chat_template/json_value.h"
#include "chat_template/message_content.h"
#include "chat_template/ops.h"

namespace sluice {

using jinja::DictEntry;
using jinja::Heap;
using jinja::Value;

namespace {

// The input is already in memory, so its values may take several times its size.
constexpr std::size_t kMaxContextBytes = std::size_t{2} << 30;

std::unique_ptr<Heap> make_heap(const StopCheck* stop = nullptr) {
  return std::make_unique<Heap>(kMaxContextBytes, std::numeric_limits<std::uint64_t>::max(), stop);
}

Value key(std::string_view name) { return Value::string(name); }

Result<Value> to_value(const ChatJson& json, Heap& heap, std::string_view what) {
  if (const auto* text = std::get_if<std::string_view>(&json)) {
    return jinja::parse_json(*text, heap, what);
  }
  const JsonValue* tree = std::get<const JsonValue*>(json);
  return tree == nullptr ? Value::none() : jinja::from_tree(*tree, heap, what);
}

// Returns the message with its reasoning under every name that templates read.
Value with_reasoning_names(Heap& heap, Value message) {
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* reasoning = find(message.as_dict(), name);
    if (reasoning == nullptr || reasoning->is_none()) continue;
    std::vector<DictEntry> entries{{key("thinking"), *reasoning}};
    const auto given = message.as_dict().entries;
    entries.insert(entries.end(), given.begin(), given.end());
    entries.push_back({key("reasoning_content"), *reasoning});
    return heap.make_dict(entries);
  }
  return message;
}

// Returns {"arguments": "{..}"} with the parsed object in place of its text.
Result<Value> with_parsed_arguments(Heap& heap, Value function, std::string_view where) {
  if (!function.is_dict()) return function;
  const Value* arguments = find(function.as_dict(), "arguments");
  if (arguments == nullptr || !arguments->is_string() || arguments->text().empty()) {
    return function;
  }
  ASSIGN_OR_RETURN(const Value parsed,
                   jinja::parse_json(arguments->text(), heap, std::string(where)));
  const auto given = function.as_dict().entries;
  std::vector<DictEntry> entries(given.begin(), given.end());
  entries.push_back({key("arguments"), parsed});
  return heap.make_dict(entries);
}

Result<Value> with_parsed_calls(Heap& heap, Value message, const std::string& where) {
  const Value* calls = find(message.as_dict(), "tool_calls");
  if (calls == nullptr || !calls->is_sequence()) return message;
  std::vector<Value> parsed;
  for (const Value call : calls->items()) {
    const Value* function = call.is_dict() ? find(call.as_dict(), "function") : nullptr;
    if (function == nullptr) {
      parsed.push_back(call);
      continue;
    }
    const auto given = call.as_dict().entries;
    std::vector<DictEntry> entries(given.begin(), given.end());
    ASSIGN_OR_RETURN(const Value body,
                     with_parsed_arguments(heap, *function, where + ".tool_calls: arguments"));
    entries.push_back({key("function"), body});
    parsed.push_back(heap.make_dict(entries));
  }
  const auto given = message.as_dict().entries;
  std::vector<DictEntry> entries(given.begin(), given.end());
  entries.push_back({key("tool_calls"), heap.make_list(parsed)});
  return heap.make_dict(entries);
}

Result<Value> read_messages(Heap& heap, const ChatInput& input, std::string_view* final_text) {
  ASSIGN_OR_RETURN(const Value messages, to_value(input.messages_json, heap, "messages"));
  if (!messages.is_sequence()) return invalid_argument("messages: must be an array of objects");
  std::vector<Value> prepared;
  for (std::size_t i = 0; i < messages.items().size(); ++i) {
    Value message = messages.items()[i];
    const std::string where = "messages[" + std::to_string(i) + "]";
    if (!message.is_dict()) return invalid_argument(where + ": must be an object");
    message = jinja::without_nulls(heap, message);
    if (input.tool_arguments == ToolArguments::kParsed) {
      ASSIGN_OR_RETURN(message, with_parsed_calls(heap, message, where));
    }
    ASSIGN_OR_RETURN(message, jinja::with_content_as(heap, message, input.content_parts, where));
    const bool is_final = i + 1 == messages.items().size();
    if (is_final && !input.final_text_suffix.empty()) {
      ASSIGN_OR_RETURN(jinja::FinalMessage final_message,
                       jinja::with_suffix(heap, message, input.final_text_suffix, where));
      message = final_message.message;
      *final_text = final_message.text;
    }
    message = jinja::with_no_content_as(heap, message, input.no_content);
    prepared.push_back(with_reasoning_names(heap, message));
  }
  if (prepared.empty() && !input.final_text_suffix.empty()) {
    return invalid_argument("messages: there is no final message to continue");
  }
  return heap.make_list(prepared);
}

}  // namespace

bool is_given(const ChatJson& json) {
  const auto* text = std::get_if<std::string_view>(&json);
  return text != nullptr ? !text->empty() : std::get<const JsonValue*>(json) != nullptr;
}

ChatContext::ChatContext(std::unique_ptr<Heap> heap, Value variables,
                         std::chrono::local_seconds now)
    : heap_(std::move(heap)), variables_(variables), now_(now) {}
ChatContext::ChatContext(ChatContext&&) noexcept = default;
ChatContext& ChatContext::operator=(ChatContext&&) noexcept = default;
ChatContext::~ChatContext() = default;

Result<ChatContext> ChatContext::from_chat(const ChatInput& input) {
  auto heap = make_heap(input.stop);
  std::vector<DictEntry> entries;
  for (const auto& [name, text] : input.special_tokens) {
    entries.push_back({heap->make_string(name), heap->make_string(text)});
  }
  std::string_view final_text;
  ASSIGN_OR_RETURN(const Value messages, read_messages(*heap, input, &final_text));
  entries.push_back({key("messages"), messages});
  Value tools = Value::none();
  if (is_given(input.tools_json)) {
    ASSIGN_OR_RETURN(tools, to_value(input.tools_json, *heap, "tools"));
    if (!tools.is_sequence() && !tools.is_none()) {
      return invalid_argument("tools: must be an array of objects");
    }
  }
  entries.push_back({key("tools"), tools});
  entries.push_back({key("documents"), Value::none()});
  entries.push_back({key("add_generation_prompt"), Value::boolean(input.add_generation_prompt)});
  if (is_given(input.extra_json)) {
    ASSIGN_OR_RETURN(const Value extra, to_value(input.extra_json, *heap, "chat_template_kwargs"));
    if (!extra.is_dict()) return invalid_argument("chat_template_kwargs: must be an object");
    for (const std::string_view name : {"messages", "tools"}) {
      if (find(extra.as_dict(), name) == nullptr) continue;
      return invalid_argument("chat_template_kwargs: '" + std::string(name) +
                              "' is a field of the request itself");
    }
    const auto given = extra.as_dict().entries;
    entries.insert(entries.end(), given.begin(), given.end());
  }
  const Value variables = heap->make_dict(entries);
  ChatContext context(std::move(heap), variables, input.now);
  context.final_text_ = final_text;
  return context;
}

Result<ChatContext> ChatContext::from_json(std::string_view object,
                                           std::chrono::local_seconds now) {
  auto heap = make_heap();
  ASSIGN_OR_RETURN(const Value variables, jinja::parse_json(object, *heap, "context"));
  if (!variables.is_dict()) return invalid_argument("context: must be a JSON object");
  return ChatContext(std::move(heap), variables, now);
}

std::chrono::local_seconds local_time_now() {
  // tidy: allow(wall-clock) a date in a prompt is calendar time; no decision depends on it
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  // tidy: allow(wall-clock) as above
  localtime_r(&now, &tm);
  return std::chrono::local_seconds(std::chrono::seconds(now + tm.tm_gmtoff));
}

}  // namespace sluice
