#include "server/prepare_generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "front/answer_grammar.h"
#include "front/sampling_defaults.h"
#include "front/tool_grammar.h"
#include "server/answer_size.h"
#include "server/request_id.h"
#include "server/request_json.h"
#include "server/sampling_fields.h"
#include "server/tool_prompt.h"

namespace sluice {
namespace {

std::string prompt_param(const GenerationCall& call, std::size_t index) {
  if (call.kind == ApiKind::kChat) return "messages";
  if (call.kind == ApiKind::kEmbedding) {
    return call.embedding.field_of(index, call.prompts.size());
  }
  return call.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", index);
}

// -1 leaves room for the tokens that the call asks for.
PromptTruncation truncation_of(const GenerationCall& call, const EngineLimits& limits) {
  PromptTruncation truncation;
  truncation.side = call.truncation_side;
  if (!call.truncate_prompt_tokens) return truncation;
  const bool asks_for_length = call.given.max_tokens || call.kind != ApiKind::kChat;
  const std::int32_t output = asks_for_length ? call.sampling.max_tokens : 1;
  const std::int32_t room = limits.max_model_len - std::min(output, limits.max_model_len - 1);
  truncation.max_tokens = static_cast<std::size_t>(
      *call.truncate_prompt_tokens < 0 ? room : *call.truncate_prompt_tokens);
  return truncation;
}

// Each word as it stands at the beginning of a text, and behind a space. vLLM takes the second only
// if it has as many tokens, which with many tokenizers lets the word through inside of a text.
ApiResult<std::vector<std::vector<TokenId>>> tokenize_bad_words(
    const Tokenizer& tokenizer, const std::vector<std::string>& words) {
  std::vector<std::vector<TokenId>> sequences;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t text = words[i].find_first_not_of(" \t\r\n");
    const std::string bare = text == std::string::npos ? words[i] : words[i].substr(text);
    auto first = tokenizer.encode(bare, {AddSpecialTokens::kNo});
    auto later = tokenizer.encode(" " + bare, {AddSpecialTokens::kNo});
    if (!first || !later) {
      const Error& error = first ? later.error() : first.error();
      return tl::unexpected(to_api_error(error, fmt::format("bad_words[{}]", i)));
    }
    const bool differs = *first != *later;
    sequences.push_back(*std::move(first));
    if (differs) sequences.push_back(*std::move(later));
  }
  return sequences;
}

PromptResult<PreparedPrompt> build_prompt(PromptWorker& worker, GenerationCall& call,
                                          std::size_t index, std::string_view salt,
                                          const StopCheck& stop) {
  const AddSpecialTokens add_special_tokens =
      call.add_special_tokens ? AddSpecialTokens::kYes : AddSpecialTokens::kNo;
  const PromptTruncation truncation = truncation_of(call, worker.model().limits);
  if (call.kind == ApiKind::kChat) {
    return worker.from_chat(chat_parts(call.chat), add_special_tokens, salt, stop, truncation);
  }
  CompletionPrompt& prompt = call.prompts[index];
  if (auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    return worker.from_ids(std::move(*ids), salt, truncation);
  }
  return worker.from_text(std::get<std::string>(prompt), add_special_tokens, salt, stop,
                          truncation);
}

// Some models mark calls and reasoning with special tokens, which must then be part of the text.
bool needs_special_tokens(const ServedModel& model, const GenerationCall& call,
                          const ToolFormat* tool_format) {
  std::vector<std::string_view> markers;
  if (tool_format != nullptr) {
    markers = {tool_format->begin, tool_format->end, tool_format->separator};
    markers.insert(markers.end(), tool_format->dropped.begin(), tool_format->dropped.end());
  }
  if (call.kind == ApiKind::kChat && model.reasoning_format != nullptr) {
    markers.push_back(model.reasoning_format->begin);
    markers.push_back(model.reasoning_format->end);
  }
  return std::ranges::any_of(markers, [&](std::string_view marker) {
    // A marker may be a special token and text, as in "<｜tool▁call▁begin｜>function".
    const auto ids = model.tokenizer.encode(marker, {AddSpecialTokens::kNo});
    return ids && model.tokenizer.decode(*ids, SkipSpecialTokens::kYes) !=
                      model.tokenizer.decode(*ids, SkipSpecialTokens::kNo);
  });
}

ApiResult<void> make_echo(const Tokenizer& tokenizer, const GenerationCall& call,
                          SkipSpecialTokens skip, PromptPart& part) {
  if (!call.echo) return {};
  if (call.sampling.logprobs < 0) {
    part.echo = tokenizer.decode(part.prompt.ids, skip);
    return {};
  }
  auto stream = TextStream::create(&tokenizer, SamplingParams{}, {}, skip);
  if (!stream) return tl::unexpected(to_api_error(stream.error(), "echo"));
  stream->push(part.prompt.ids, part.echo, part.echo_offsets);
  stream->finish(part.echo);
  return {};
}

ApiError grammar_error(const StructuredOutput& structured, const Error& error) {
  if (error.code != ErrorCode::kInvalidArgument) return to_api_error(error);
  return bad_field(structured.field, fmt::format("{}: {}", structured.field, error.message));
}

ApiResult<PromptPart> prepare_part(PromptWorker& worker, GenerationCall& call, std::size_t index,
                                   const ToolFormat* tool_format, std::string_view salt,
                                   const StopCheck& stop) {
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
      call.skip_special_tokens && !needs_special_tokens(model, call, tool_format)
          ? SkipSpecialTokens::kYes
          : SkipSpecialTokens::kNo;
  const bool continues_prompt = call.kind != ApiKind::kChat || call.chat.continue_final_message;
  const std::span<const TokenId> before =
      continues_prompt ? std::span<const TokenId>(part.prompt.ids) : std::span<const TokenId>();
  auto stream = TextStream::create(&model.tokenizer, part.sampling, before, skip);
  if (!stream) return tl::unexpected(to_api_error(stream.error(), "stop"));
  const auto n = static_cast<std::size_t>(part.sampling.n);
  part.streams.reserve(n);
  for (std::size_t i = 0; i < n; ++i) part.streams.push_back(*stream);
  if (auto echo = make_echo(model.tokenizer, call, skip, part); !echo) {
    return tl::unexpected(std::move(echo).error());
  }
  if (call.kind == ApiKind::kChat && model.reasoning_format != nullptr) {
    part.reasoning = model.reasoning_format;
    constexpr std::size_t kTail = 32;  // tokens; more than any marker has
    const std::span<const TokenId> ids(part.prompt.ids);
    part.begins_inside_reasoning = begins_inside(
        *part.reasoning,
        model.tokenizer.decode(ids.last(std::min(kTail, ids.size())), SkipSpecialTokens::kNo));
  }
  if (call.structured) {
    auto grammar = compile_answer_grammar(model, call.structured->spec, part.reasoning,
                                          part.begins_inside_reasoning, stop);
    if (!grammar) return tl::unexpected(grammar_error(*call.structured, grammar.error()));
    part.sampling.grammar = *std::move(grammar);
  }
  // A token whose KV comes from the prefix cache has no logits and no hidden state.
  const bool mean = call.kind == ApiKind::kEmbedding && model.embedding.pooling == Pooling::kMean;
  if (part.sampling.prompt_logprobs >= 0 || mean) part.prompt.block_hashes.clear();
  return part;
}

// The format of calls, their grammar if the call asks for one, and the tools in the prompt.
ApiResult<void> prepare_tools(const ServedModel& model, GenerationCall& call,
                              PreparedGeneration& prepared) {
  JsonValue& tools = call.chat.tools;
  if (call.kind != ApiKind::kChat) return {};
  const bool marks_text = model.tool_format != nullptr && !model.tool_format->text_begin.empty();
  if (marks_text && call.structured) {
    auto begin = grammar_literal(model.tokenizer, model.tool_format->text_begin);
    if (!begin) return tl::unexpected(to_api_error(begin.error(), call.structured->field));
    call.structured->spec.begin = *std::move(begin);
  }
  if (marks_text || !tools.is_null()) prepared.tool_format = model.tool_format;
  if (tools.is_null()) return {};
  const bool shown = shows_tools(model);
  // A model that is held to calls, or told how to write them, writes those of this format.
  if (prepared.tool_format == nullptr && (!shown || call.tool_choice.required)) {
    prepared.tool_format = find_tool_format("hermes");
  }
  std::string text;
  append_json(tools, text);
  prepared.tool_parameters = ToolParameters::from_json(text);
  // Beside a required call there is no content that could have the structure.
  if (call.tool_choice.required) call.structured.reset();
  const bool held = prepared.tool_format != nullptr &&
                    (call.structured || needs_tool_grammar(tools, call.tool_choice));
  if (held) {
    auto answer = tool_grammar(model.tokenizer, *prepared.tool_format, tools, call.tool_choice);
    if (!answer) return tl::unexpected(to_api_error(answer.error(), "tools"));
    std::string key =
        fmt::format("{} {} {} {} {}", prepared.tool_format->name, call.tool_choice.required,
                    call.tool_choice.parallel, call.tool_choice.name, text);
    if (call.structured) {
      answer->text_allowed = false;
      call.structured->spec.calls = *std::move(answer);
      call.structured->spec.calls_text = std::move(key);
    } else {
      call.structured.emplace();
      call.structured->spec.kind = GrammarKind::kTagged;
      call.structured->spec.text = std::move(key);
      call.structured->spec.tagged = *std::move(answer);
      call.structured->field = "tools";
    }
  }
  if (!shown) describe_tools(call.chat);
  return {};
}

// Fills in what the model says, and checks the call against it.
ApiResult<void> prepare_embedding(const ServedModel& model, EmbeddingPart& part) {
  if (!model.no_embedding_reason.empty()) {
    return tl::unexpected(to_api_error(unsupported(
        fmt::format("{} makes no vectors of texts: {}", model.name, model.no_embedding_reason))));
  }
  if (!part.normalize) part.normalize = model.embedding.normalize;
  const std::int32_t width = model.limits.hidden_size;
  if (part.dimensions.value_or(width) <= width) return {};
  return tl::unexpected(
      bad_field("dimensions", fmt::format("dimensions: got {}; the vectors of {} have {}",
                                          *part.dimensions, model.name, width)));
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

bool shows_tools(const ServedModel& model) {
  if (!model.templates) return true;  // rendering reports the problem
  const auto chosen = model.templates->choose(ToolsGiven::kYes);
  return !chosen || (*chosen)->reads_tools();
}

ApiError to_api_error(const PromptError& error, std::string param) {
  if (error.fault == PromptFault::kStopped) param.clear();
  return to_api_error(error.error, std::move(param));
}

bool is_resumable(const PreparedGeneration& prepared) {
  const GenerationCall& call = prepared.call;
  if (call.kind == ApiKind::kEmbedding || call.pin || call.prompt_only || call.kv_memory_only) {
    return false;
  }
  if (prepared.parts.size() != 1) return false;
  const SamplingParams& sampling = prepared.parts.front().sampling;
  return sampling.n == 1 && sampling.logprobs < 0 && sampling.prompt_logprobs < 0;
}

ApiResult<PreparedGeneration> prepare_generation(PromptWorker& worker, GenerationCall call,
                                                 std::string_view key_name, const StopCheck& stop,
                                                 SharedAdapter adapter) {
  worker.use_adapter(adapter == nullptr ? nullptr : adapter->content.get());
  auto bad_words = tokenize_bad_words(worker.model().tokenizer, call.bad_words);
  if (!bad_words) return tl::unexpected(std::move(bad_words).error());
  call.sampling.bad_words = *std::move(bad_words);
  PreparedGeneration prepared;
  prepared.adapter = std::move(adapter);
  if (auto ready = prepare_tools(worker.model(), call, prepared); !ready) {
    return tl::unexpected(std::move(ready).error());
  }
  if (call.kind == ApiKind::kEmbedding) {
    if (auto ready = prepare_embedding(worker.model(), call.embedding); !ready) {
      return tl::unexpected(std::move(ready).error());
    }
    prepared.pooling = worker.model().embedding.pooling;
  }
  const std::string salt = tenant_salt(key_name, call.cache_salt);
  const std::size_t count = call.kind == ApiKind::kChat ? 1 : call.prompts.size();
  prepared.parts.reserve(count);
  AnswerSize answer;
  for (std::size_t i = 0; i < count; ++i) {
    if (auto status = stop ? stop() : Status{}; !status) {
      return tl::unexpected(to_api_error(status.error()));
    }
    auto part = prepare_part(worker, call, i, prepared.tool_format, salt, stop);
    if (!part) return tl::unexpected(std::move(part).error());
    const AnswerSize size =
        call.kind == ApiKind::kEmbedding
            ? embedding_size(call.embedding, worker.model().limits.hidden_size)
            : whole_answer_size(call, part->sampling, part->prompt.ids.size(), part->echo.size());
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
