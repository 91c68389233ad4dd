#include <limits>
#include <utility>

#include "server/chat_fields.h"
#include "server/generation_call.h"
#include "server/sampling_fields.h"

namespace sluice {
namespace {

constexpr std::size_t kAnyLength = std::numeric_limits<std::size_t>::max();

void read_model(FieldReader& reader, std::optional<std::string>& out) {
  if (const std::string* model = reader.string("model", kMaxModelBytes)) out = *model;
}

}  // namespace

ApiResult<TokenizeCall> parse_tokenize_call(std::string_view body, BodyReading reading) {
  auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  TokenizeCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  read_model(reader, call.model);
  const std::string* prompt = reader.string("prompt", kAnyLength);
  const bool has_messages = reader.find("messages") != nullptr;
  if (prompt != nullptr && has_messages) {
    reader.bad("prompt", "is given together with messages; give one of them");
  } else if (prompt != nullptr) {
    call.prompt = *prompt;
  } else if (has_messages) {
    ChatPart chat;
    read_chat_fields(reader, *object, chat);
    read_tools(reader, *object, chat.tools);
    call.chat = std::move(chat);
    call.add_special_tokens = false;  // the template has them
  } else if (!reader.failed()) {
    reader.missing_either("prompt", "messages", "a string, or messages");
  }
  reader.read_into("add_special_tokens", call.add_special_tokens);
  reader.read_into("return_token_strs", call.return_token_strs);
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

ApiResult<DetokenizeCall> parse_detokenize_call(std::string_view body, BodyReading reading) {
  const auto object = parse_request_json(body);
  if (!object) return tl::unexpected(object.error());
  DetokenizeCall call;
  FieldReader reader(*object, "", ignored_of(call, reading), reading.fields);
  read_model(reader, call.model);
  if (auto tokens = reader.token_ids("tokens", kAnyLength)) {
    call.tokens = *std::move(tokens);
  } else if (!reader.failed()) {
    reader.missing("tokens", "an array of token ids");
  }
  reader.check_unknown();
  if (reader.failed()) return tl::unexpected(*reader.error());
  return call;
}

}  // namespace sluice
