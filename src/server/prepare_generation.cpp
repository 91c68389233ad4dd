#include "server/prepare_generation.h"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <utility>

#include "front/sampling_defaults.h"
#include "server/answer_size.h"
#include "server/request_id.h"
#include "server/sampling_fields.h"

namespace sluice {
namespace {

std::string prompt_param(const GenerationCall& call, std::size_t index) {
  if (call.kind == ApiKind::kChat) return "messages";
  return call.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", index);
}

PromptResult<PreparedPrompt> build_prompt(PromptWorker& worker, GenerationCall& call,
                                          std::size_t index, std::string_view salt,
                                          const StopCheck& stop) {
  const AddSpecialTokens add_special_tokens =
      call.add_special_tokens ? AddSpecialTokens::kYes : AddSpecialTokens::kNo;
  if (call.kind == ApiKind::kChat) {
    return worker.from_chat(chat_parts(call.chat), add_special_tokens, salt, stop);
  }
  CompletionPrompt& prompt = call.prompts[index];
  if (auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    return worker.from_ids(std::move(*ids), salt);
  }
  return worker.from_text(std::get<std::string>(prompt), add_special_tokens, salt, stop);
}

ApiResult<PromptPart> prepare_part(PromptWorker& worker, GenerationCall& call, std::size_t index,
                                   std::string_view salt, const StopCheck& stop) {
  const ServedModel& model = worker.model();
  auto prompt = build_prompt(worker, call, index, salt, stop);
  if (!prompt) return tl::unexpected(to_api_error(prompt.error(), prompt_param(call, index)));
  PromptPart part;
  part.prompt = *std::move(prompt);
  part.sampling = call.sampling;
  // The default of completions is OpenAI's 16 tokens, of chats all the room in the context.
  const MissingMaxTokens missing =
      call.kind == ApiKind::kChat ? MissingMaxTokens::kModelOrContext : MissingMaxTokens::kKeep;
  if (auto status = complete_sampling(call.given, model.generation, missing, model.limits,
                                      part.prompt.ids.size(), part.sampling);
      !status) {
    return tl::unexpected(to_api_error(status.error(), sampling_field(status.error())));
  }
  if (!call.given.seed) part.sampling.seed = random_bits() >> 1;
  const SkipSpecialTokens skip =
      call.skip_special_tokens ? SkipSpecialTokens::kYes : SkipSpecialTokens::kNo;
  const bool continues_prompt = call.kind != ApiKind::kChat || call.chat.continue_final_message;
  const std::span<const TokenId> before =
      continues_prompt ? std::span<const TokenId>(part.prompt.ids) : std::span<const TokenId>();
  auto stream = TextStream::create(&model.tokenizer, part.sampling, before, skip);
  if (!stream) return tl::unexpected(to_api_error(stream.error(), "stop"));
  const auto n = static_cast<std::size_t>(part.sampling.n);
  part.streams.reserve(n);
  for (std::size_t i = 0; i < n; ++i) part.streams.push_back(*stream);
  if (call.echo) part.echo = model.tokenizer.decode(part.prompt.ids, skip);
  return part;
}

}  // namespace

ChatParts chat_parts(const ChatPart& chat) {
  ChatParts parts;
  parts.messages_json = &chat.messages;
  if (!chat.tools.is_null()) parts.tools_json = &chat.tools;
  if (!chat.variables.is_null()) parts.extra_json = &chat.variables;
  parts.add_generation_prompt = chat.add_generation_prompt;
  parts.continue_final_message = chat.continue_final_message;
  // Clients send a call's arguments as a JSON string; most templates need the object in it.
  parts.tool_arguments = ToolArguments::kParsed;
  parts.content_parts = ContentParts::kJoinedText;
  return parts;
}

// Without this check, a template that ignores tools would hide them from the model.
ApiResult<void> check_tools(const ServedModel& model, const ChatPart& chat) {
  if (chat.tools.is_null() || !model.templates) return {};
  const auto chosen = model.templates->choose(ToolsGiven::kYes);
  if (!chosen || (*chosen)->reads_tools()) return {};  // rendering reports the problem
  return tl::unexpected(unsupported_field(
      "tools", fmt::format("tools: the chat template of {} does not show tools to the model; "
                           "describe them in a message, or leave them out",
                           model.name)));
}

ApiError to_api_error(const PromptError& error, std::string param) {
  if (error.fault == PromptFault::kStopped) param.clear();
  ApiError api = to_api_error(error.error, std::move(param));
  if (error.fault == PromptFault::kContextLength) api.code = "context_length_exceeded";
  return api;
}

ApiResult<PreparedGeneration> prepare_generation(PromptWorker& worker, GenerationCall call,
                                                 std::string_view key_name, const StopCheck& stop) {
  if (auto read = check_tools(worker.model(), call.chat); !read) {
    return tl::unexpected(std::move(read).error());
  }
  PreparedGeneration prepared;
  const std::string salt = tenant_salt(key_name, call.cache_salt);
  const std::size_t count = call.kind == ApiKind::kChat ? 1 : call.prompts.size();
  prepared.parts.reserve(count);
  AnswerSize answer;
  for (std::size_t i = 0; i < count; ++i) {
    if (auto status = stop ? stop() : Status{}; !status) {
      return tl::unexpected(to_api_error(status.error()));
    }
    auto part = prepare_part(worker, call, i, salt, stop);
    if (!part) return tl::unexpected(std::move(part).error());
    const AnswerSize size =
        whole_answer_size(call, part->sampling, part->prompt.ids.size(), part->echo.size());
    answer.json += size.json;
    answer.held += size.held;
    prepared.parts.push_back(*std::move(part));
  }
  if (auto fits = check_answer_size(call, answer); !fits) {
    return tl::unexpected(std::move(fits).error());
  }
  if (!call.stream) prepared.held_bytes = answer.held;
  call.chat = {};
  call.prompts.clear();
  prepared.call = std::move(call);
  return prepared;
}

}  // namespace sluice
