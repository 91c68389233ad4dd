#include "server/response_json.h"

#include "server/json_writer.h"
#include "server/logprobs_json.h"

namespace sluice {
namespace {

// vLLM's names for reasons that OpenAI does not have.
std::string_view api_finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "abort";
    case FinishReason::kError:
    case FinishReason::kNoMemory:
    case FinishReason::kNoAdapter:
    case FinishReason::kLostKv: return "error";
  }
  return "error";
}

void append_finish_reason(FinishReason reason, bool called_tools, std::string& out) {
  if (reason == FinishReason::kNone) {
    out += "null";
    return;
  }
  out += '"';
  out += called_tools && reason == FinishReason::kStop ? "tool_calls" : api_finish_reason(reason);
  out += '"';
}

void append_stop_reason(const std::optional<std::string>& reason, std::string& out) {
  out += R"(,"stop_reason":)";
  if (reason) {
    append_json_string(*reason, out);
  } else {
    out += "null";
  }
}

// ,"name":[1,2,3]
void append_ids(std::string_view name, std::span<const TokenId> ids, std::string& out) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_list(ids, out, [&](TokenId id) { append_json_integer(id, out); });
}

void append_logprobs(ApiKind kind, const LogprobList* logprobs, std::string& out) {
  out += R"(,"logprobs":)";
  if (logprobs == nullptr) {
    out += "null";
  } else if (kind == ApiKind::kChat) {
    append_chat_logprobs(*logprobs, out);
  } else {
    append_completion_logprobs(*logprobs, out);
  }
}

void append_usage(const Usage& usage, std::string& out) {
  out += R"(,"usage":{"prompt_tokens":)";
  append_json_integer(usage.prompt_tokens, out);
  out += R"(,"completion_tokens":)";
  append_json_integer(usage.completion_tokens, out);
  out += R"(,"total_tokens":)";
  append_json_integer(usage.prompt_tokens + usage.completion_tokens, out);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_json_integer(usage.cached_tokens, out);
  out += '}';
  if (usage.reasoning_tokens) {
    out += R"(,"completion_tokens_details":{"reasoning_tokens":)";
    append_json_integer(*usage.reasoning_tokens, out);
    out += '}';
  }
  out += '}';
}

std::string head_json(const AnswerHead& head, std::string_view object) {
  std::string out = R"({"id":)";
  append_json_string(head.id, out);
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  append_json_integer(head.created, out);
  out += R"(,"model":)";
  append_json_string(head.model, out);
  if (!head.system_fingerprint.empty()) {
    out += R"(,"system_fingerprint":)";
    append_json_string(head.system_fingerprint, out);
  }
  out += R"(,"choices":)";
  return out;
}

// ,"tool_calls":[..]; the deltas of a stream have the index of the call.
void append_tool_calls(std::span<const ToolCallAnswer> calls, bool with_index, std::string& out) {
  out += R"(,"tool_calls":)";
  append_json_list(calls, out, [&](const ToolCallAnswer& call) {
    out += '{';
    if (with_index) {
      out += R"("index":)";
      append_json_integer(call.index, out);
      out += ',';
    }
    out += R"("id":)";
    append_json_string(call.id, out);
    out += R"(,"type":"function","function":{"name":)";
    append_json_string(call.name, out);
    out += R"(,"arguments":)";
    append_json_string(call.arguments, out);
    out += "}}";
  });
}

void append_choice(ApiKind kind, const ChoiceAnswer& choice, std::string& out) {
  out += R"({"index":)";
  append_json_integer(choice.index, out);
  if (kind == ApiKind::kChat) {
    out += R"(,"message":{"role":"assistant","content":)";
    if (choice.text.empty() && !choice.tool_calls.empty()) {
      out += "null";
    } else {
      append_json_string(choice.text, out);
    }
    out += R"(,"refusal":null)";
    if (!choice.reasoning.empty()) {
      out += R"(,"reasoning_content":)";
      append_json_string(choice.reasoning, out);
    }
    if (!choice.tool_calls.empty()) append_tool_calls(choice.tool_calls, false, out);
    out += '}';
  } else {
    out += R"(,"text":)";
    append_json_string(choice.text, out);
  }
  append_logprobs(kind, choice.logprobs ? &*choice.logprobs : nullptr, out);
  out += R"(,"finish_reason":)";
  append_finish_reason(choice.finish_reason, !choice.tool_calls.empty(), out);
  append_stop_reason(choice.stop_reason, out);
  if (choice.token_ids) append_ids("token_ids", *choice.token_ids, out);
  if (kind == ApiKind::kCompletion && choice.prompt_token_ids) {
    append_ids("prompt_token_ids", *choice.prompt_token_ids, out);
  }
  if (kind == ApiKind::kCompletion && choice.prompt_logprobs) {
    out += R"(,"prompt_logprobs":)";
    append_prompt_logprobs(*choice.prompt_logprobs, out);
  }
  out += '}';
}

// {"role":"assistant","content":"..."}; the last delta, with nothing to say, is {}.
void append_delta(const ChunkPart& part, std::string& out) {
  out += R"(,"delta":{)";
  if (part.first) out += R"("role":"assistant",)";
  const bool says_something =
      !part.text.empty() || !part.reasoning.empty() || !part.tool_calls.empty();
  if (part.first || !part.text.empty() ||
      (!says_something && part.finish_reason == FinishReason::kNone)) {
    out += R"("content":)";
    append_json_string(part.text, out);
  }
  const bool has_content = out.back() != '{' && out.back() != ',';
  if (!has_content && (!part.reasoning.empty() || !part.tool_calls.empty())) {
    out += R"("content":null)";
  }
  if (!part.reasoning.empty()) {
    out += R"(,"reasoning_content":)";
    append_json_string(part.reasoning, out);
  }
  if (!part.tool_calls.empty()) append_tool_calls(part.tool_calls, true, out);
  out += '}';
}

void append_model_card(const ModelCard& model, std::string& out) {
  out += R"({"id":)";
  append_json_string(model.id, out);
  out += R"(,"object":"model","created":)";
  append_json_integer(model.created, out);
  out += R"(,"owned_by":"sluice","max_model_len":)";
  append_json_integer(model.max_model_len, out);
  if (!model.parent.empty()) {
    out += R"(,"root":)";
    append_json_string(model.root, out);
    out += R"(,"parent":)";
    append_json_string(model.parent, out);
  }
  out += '}';
}

}  // namespace

std::string answer_json(const AnswerHead& head, std::span<const ChoiceAnswer> choices,
                        const Usage& usage) {
  const bool chat = head.kind == ApiKind::kChat;
  std::string out = head_json(head, chat ? "chat.completion" : "text_completion");
  append_json_list(choices, out,
                   [&](const ChoiceAnswer& choice) { append_choice(head.kind, choice, out); });
  append_usage(usage, out);
  // All choices of a chat have the same prompt: vLLM has it beside them, once.
  if (chat && !choices.empty() && choices.front().prompt_token_ids) {
    append_ids("prompt_token_ids", *choices.front().prompt_token_ids, out);
  }
  if (chat && !choices.empty() && choices.front().prompt_logprobs) {
    out += R"(,"prompt_logprobs":)";
    append_prompt_logprobs(*choices.front().prompt_logprobs, out);
  }
  out += '}';
  return out;
}

std::size_t answer_json_bound(ApiKind kind, std::span<const ChoiceAnswer> choices) {
  constexpr std::size_t kEscaped = 6;  // \u0001 for one byte
  constexpr std::size_t kInteger = 12;
  constexpr std::size_t kFloat = 16;
  constexpr std::size_t kChoice = 4096;  // names, stop reason, usage
  constexpr std::size_t kCall = 256;
  std::size_t bytes = kChoice;
  for (const ChoiceAnswer& choice : choices) {
    bytes += kChoice + kEscaped * (choice.text.size() + choice.reasoning.size());
    for (const ToolCallAnswer& call : choice.tool_calls) {
      bytes += kCall + kEscaped * (call.name.size() + call.arguments.size());
    }
    bytes += kFloat * choice.embedding.size();
    if (choice.token_ids) bytes += kInteger * choice.token_ids->size();
    if (choice.prompt_token_ids) bytes += kInteger * choice.prompt_token_ids->size();
    if (choice.logprobs) bytes += logprobs_json_bound(kind, *choice.logprobs);
    if (choice.prompt_logprobs) bytes += prompt_logprobs_json_bound(*choice.prompt_logprobs);
  }
  return bytes;
}

ChunkWriter::ChunkWriter(const AnswerHead& head)
    : head_(head),
      prefix_(head_json(
          head, head.kind == ApiKind::kChat ? "chat.completion.chunk" : "text_completion")) {}

void ChunkWriter::append_chunk(const ChunkPart& part, std::string& out) const {
  const bool chat = head_.kind == ApiKind::kChat;
  out += prefix_;
  out += R"([{"index":)";
  append_json_integer(part.index, out);
  if (chat) {
    append_delta(part, out);
  } else {
    out += R"(,"text":)";
    append_json_string(part.text, out);
  }
  append_logprobs(head_.kind, part.logprobs, out);
  out += R"(,"finish_reason":)";
  append_finish_reason(part.finish_reason, part.called_tools, out);
  if (part.finish_reason != FinishReason::kNone) append_stop_reason(part.stop_reason, out);
  if (!part.token_ids.empty()) append_ids("token_ids", part.token_ids, out);
  if (!chat && part.prompt_token_ids != nullptr) {
    append_ids("prompt_token_ids", *part.prompt_token_ids, out);
  }
  out += "}]";
  if (chat && part.prompt_token_ids != nullptr) {
    append_ids("prompt_token_ids", *part.prompt_token_ids, out);
  }
  if (part.usage != nullptr) append_usage(*part.usage, out);
  out += '}';
}

void ChunkWriter::append_usage_chunk(const Usage& usage, std::string& out) const {
  out += prefix_;
  out += "[]";
  append_usage(usage, out);
  out += '}';
}

void append_sse(std::string_view json, std::string& out) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

std::string models_json(std::span<const ModelCard> models) {
  std::string out = R"({"object":"list","data":)";
  append_json_list(models, out, [&](const ModelCard& model) { append_model_card(model, out); });
  out += '}';
  return out;
}

std::string model_json(const ModelCard& model) {
  std::string out;
  append_model_card(model, out);
  return out;
}

std::string tokenize_json(const TokenizeAnswer& answer) {
  std::string out = R"({"count":)";
  append_json_integer(static_cast<std::int64_t>(answer.tokens.size()), out);
  out += R"(,"max_model_len":)";
  append_json_integer(answer.max_model_len, out);
  append_ids("tokens", answer.tokens, out);
  out += R"(,"token_strs":)";
  if (answer.token_strs) {
    append_json_list(*answer.token_strs, out,
                     [&](const std::string& text) { append_json_string(text, out); });
  } else {
    out += "null";
  }
  out += '}';
  return out;
}

std::string detokenize_json(std::string_view text) {
  std::string out = R"({"prompt":)";
  append_json_string(text, out);
  out += '}';
  return out;
}

}  // namespace sluice
