#include "server/tokenize_answer.h"

#include <fmt/format.h>

#include <utility>

#include "server/generation_call.h"
#include "server/messages_answer.h"
#include "server/prepare_generation.h"
#include "server/response_json.h"
#include "server/tool_prompt.h"

namespace sluice {

ApiResult<TokenizeReply> tokenize_answer(const FindWorker& find, std::string_view body,
                                         UnknownFields unknown, const StopCheck& stop) {
  auto call = parse_tokenize_call(body, unknown);
  if (!call) return tl::unexpected(std::move(call).error());
  const auto worker = find(call->model);
  if (!worker) return tl::unexpected(worker.error());
  const ServedModel& model = (*worker)->model();
  if (call->chat && !call->chat->tools.is_null() && !shows_tools(model)) {
    describe_tools(*call->chat);
  }
  const AddSpecialTokens special =
      call->add_special_tokens ? AddSpecialTokens::kYes : AddSpecialTokens::kNo;
  auto ids = call->chat ? (*worker)->tokenize_chat(chat_parts(*call->chat), special, stop)
                        : (*worker)->tokenize_text(*call->prompt, special, stop);
  if (!ids) {
    return tl::unexpected(to_api_error(ids.error(), call->chat ? "messages" : "prompt"));
  }
  TokenizeAnswer answer;
  answer.tokens = *std::move(ids);
  answer.max_model_len = model.limits.max_model_len;
  if (call->return_token_strs) {
    answer.token_strs.emplace();
    for (const TokenId id : answer.tokens) {
      answer.token_strs->emplace_back(model.tokenizer.token_text(id));
    }
  }
  return TokenizeReply{tokenize_json(answer), std::move(call->ignored_fields)};
}

ApiResult<TokenizeReply> count_answer(const FindWorker& find, std::string_view body,
                                      UnknownFields unknown, const StopCheck& stop) {
  auto call = parse_messages_call(body, unknown, MessagesUse::kCount);
  if (!call) return tl::unexpected(std::move(call).error());
  const auto worker = find(call->model);
  if (!worker) return tl::unexpected(worker.error());
  const ServedModel& model = (*worker)->model();
  if (!call->chat.tools.is_null() && !shows_tools(model)) describe_tools(call->chat);
  const auto ids = (*worker)->tokenize_chat(chat_parts(call->chat), AddSpecialTokens::kNo, stop);
  if (!ids) return tl::unexpected(to_api_error(ids.error(), "messages"));
  return TokenizeReply{token_count_json(ids->size()), std::move(call->ignored_fields)};
}

ApiResult<TokenizeReply> detokenize_answer(const FindWorker& find, std::string_view body,
                                           UnknownFields unknown) {
  auto call = parse_detokenize_call(body, unknown);
  if (!call) return tl::unexpected(std::move(call).error());
  const auto worker = find(call->model);
  if (!worker) return tl::unexpected(worker.error());
  const ServedModel& model = (*worker)->model();
  for (std::size_t i = 0; i < call->tokens.size(); ++i) {
    const TokenId id = call->tokens[i];
    if (id >= 0 && id < model.limits.vocab_size) continue;
    return tl::unexpected(
        bad_field(fmt::format("tokens[{}]", i),
                  fmt::format("{} is not a token id of this model; ids are 0 to {}", id,
                              model.limits.vocab_size - 1)));
  }
  return TokenizeReply{
      detokenize_json(model.tokenizer.decode(call->tokens, SkipSpecialTokens::kNo)),
      std::move(call->ignored_fields)};
}

}  // namespace sluice
