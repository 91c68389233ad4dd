#include "apps/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/beside.h"
#include "apps/chat_file.h"
#include "apps/exit_code.h"
#include "apps/interrupt.h"
#include "apps/local_engine.h"
#include "apps/model_place.h"
#include "apps/open_snapshot.h"
#include "apps/option_values.h"
#include "apps/run_request.h"
#include "apps/warm_start.h"
#include "base/json.h"
#include "base/log.h"
#include "front/answer_grammar.h"
#include "front/text_sections.h"
#include "kv/block_hash.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

// Usage errors are found before anything is loaded.
struct Settings {
  EngineOptions engine;
  SamplingParams sampling;
  std::vector<TokenId> prompt_ids;
  std::optional<GrammarOption> grammar;
};

Result<std::vector<TokenId>> parse_prompt_ids(std::string_view text) {
  std::vector<TokenId> ids;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    ASSIGN_OR_RETURN(const std::int64_t id,
                     parse_integer("--prompt-ids", part, 0, std::int64_t{1} << 30));
    ids.push_back(static_cast<TokenId>(id));
    if (comma == text.size()) return ids;
    text.remove_prefix(comma + 1);
  }
}

Result<Settings> parse_settings(const GenerateArguments& arguments) {
  Settings settings;
  const int sources = int{arguments.prompt.has_value()} + int{arguments.prompt_ids.has_value()} +
                      int{arguments.chat.has_value()};
  if (sources != 1) {
    return invalid_argument("give exactly one of --prompt, --prompt-ids and --chat");
  }
  if (arguments.sampling.logprobs && !arguments.json) {
    return invalid_argument("--logprobs needs --json, which carries them");
  }
  if (arguments.prompt_ids) {
    ASSIGN_OR_RETURN(settings.prompt_ids, parse_prompt_ids(*arguments.prompt_ids));
  }
  ASSIGN_OR_RETURN(settings.engine, parse_engine_options(arguments.engine));
  ASSIGN_OR_RETURN(settings.sampling, parse_sampling(arguments.sampling));
  ASSIGN_OR_RETURN(settings.grammar, read_grammar_option(arguments.grammar));
  return settings;
}

// A model without a tokenizer can still run token ids.
Result<std::optional<LoadedTokenizer>> find_tokenizer(const GenerateArguments& arguments,
                                                      Snapshot& snapshot) {
  auto tokenizer = load_tokenizer(arguments.model, snapshot);
  if (tokenizer) return std::optional<LoadedTokenizer>(*std::move(tokenizer));
  if (!arguments.prompt_ids || tokenizer.error().code != ErrorCode::kNotFound) {
    return std::move(tokenizer).error();
  }
  log_warning(fmt::format("no text will come: {}", tokenizer.error().message));
  return std::optional<LoadedTokenizer>();
}

Result<std::vector<TokenId>> make_prompt(const GenerateArguments& arguments,
                                         const Settings& settings, const Tokenizer* tokenizer,
                                         Snapshot& snapshot) {
  if (arguments.prompt_ids) return settings.prompt_ids;
  if (arguments.prompt) {
    auto ids = tokenizer->encode(*arguments.prompt);
    if (!ids) return with_context("--prompt", std::move(ids).error());
    return ids;
  }
  ASSIGN_OR_RETURN(const ChatTemplates templates, load_chat_templates(arguments.model, snapshot));
  ASSIGN_OR_RETURN(const ChatPrompt chat,
                   chat_prompt_for_message(templates, *arguments.chat, *tokenizer));
  return chat.ids;
}

Result<TokenGrammarPtr> compile_grammar(const GrammarOption& option, const Tokenizer* tokenizer,
                                        const LoadedEngine& loaded) {
  if (tokenizer == nullptr) {
    return invalid_argument(option.name + " needs a tokenizer, and the model has none");
  }
  auto grammar =
      compile_output_grammar(*tokenizer, facts_of(loaded).limits.vocab_size, option.spec);
  if (!grammar) return with_context(option.name, std::move(grammar).error());
  return grammar;
}

ordered_json logprobs_json(const ChoiceRecord& choice) {
  if (choice.logprobs.empty()) return nullptr;
  ordered_json tokens = ordered_json::array();
  const std::size_t per_token = choice.logprobs.size() / choice.tokens.size();
  for (std::size_t i = 0; i < choice.logprobs.size(); ++i) {
    if (i % per_token == 0) tokens.push_back(ordered_json::array());
    tokens.back().push_back(
        {{"token", choice.logprobs[i].token}, {"logprob", choice.logprobs[i].logprob}});
  }
  return tokens;
}

ordered_json choice_json(const ChoiceRecord& choice) {
  return {{"output_tokens", choice.tokens},
          {"text", choice.text},
          {"finish_reason", std::string(finish_reason_name(choice.finish_reason))},
          {"logprobs", logprobs_json(choice)}};
}

// Choice 0 is at the top level; if there are several choices, all are also in "choices".
void print_json(const std::vector<TokenId>& prompt, const GenerationRecord& record) {
  ordered_json object = {{"prompt_tokens", prompt}, {"cached_tokens", record.cached_tokens}};
  object.update(choice_json(record.choices.front()));
  if (record.choices.size() > 1) {
    for (const ChoiceRecord& choice : record.choices) {
      object["choices"].push_back(choice_json(choice));
    }
  }
  object["timing"] = {{"ttft_ms", to_milliseconds(record.first_token)},
                      {"total_ms", to_milliseconds(record.total)}};
  fmt::print("{}\n", dump_json(object));
}

// The first choice has been streamed.
void print_other_choices(const GenerationRecord& record) {
  for (std::size_t i = 1; i < record.choices.size(); ++i) {
    fmt::print("--- choice {}\n{}\n", i, record.choices[i].text);
  }
}

std::string timing_line(std::size_t prompt_len, const GenerationRecord& record) {
  std::size_t tokens = 0;
  for (const ChoiceRecord& choice : record.choices) tokens += choice.tokens.size();
  std::string line = fmt::format("TTFT {:.1f} ms ({} prompt tokens)",
                                 to_milliseconds(record.first_token), prompt_len);
  const double seconds = to_seconds(record.total - record.first_token);
  const std::size_t first = std::min(tokens, record.choices.size());
  if (tokens > first && seconds > 0) {
    line += fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens - first) / seconds);
  }
  return line + fmt::format(", {} tokens in {:.2f} s, finish: {}", tokens, to_seconds(record.total),
                            finish_reason_name(record.choices.front().finish_reason));
}

// The adapter of --model-name; null: the base model.
Result<SharedAdapter> find_adapter(const LoadedEngine& loaded, const std::string& name) {
  if (name.empty()) return SharedAdapter();
  SharedAdapter adapter = loaded.adapters == nullptr ? nullptr : loaded.adapters->find(name);
  if (adapter != nullptr) return adapter;
  return invalid_argument(
      fmt::format("--model-name {}: no --adapter {}=DIRECTORY is given", name, name));
}

Request make_request(const LoadedEngine& loaded, std::vector<TokenId> prompt,
                     const SamplingParams& sampling, const SharedAdapter& adapter, TimePoint now) {
  Request request;
  request.id = 1;
  request.prompt = std::move(prompt);
  request.sampling = sampling;
  request.arrival = now;
  KvIdentity identity = loaded.kv_identity;
  if (adapter != nullptr) {
    request.adapter = adapter->content->index;
    request.adapter_content = adapter->content;
    identity.adapter_digest = adapter->content->image.digest;
  }
  request.block_hash_root = block_hash_root(identity);
  request.block_hashes =
      BlockHasher(*request.block_hash_root, loaded.block_size).hash_prompt(request.prompt);
  return request;
}

int exit_code_of(const GenerationRecord& record) {
  if (record.interrupted) return kExitInterrupted;
  for (const ChoiceRecord& choice : record.choices) {
    if (!is_failure(choice.finish_reason)) continue;
    return report_error(failure_of(choice.finish_reason), kExitError);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return report_error(internal_error("stdout could not be written"), kExitError);
  }
  return kExitSuccess;
}

Result<int> generate(const GenerateArguments& arguments, const Settings& settings) {
  const SystemClock clock;
  StartupTimeline timeline(clock);
  ASSIGN_OR_RETURN(Snapshot snapshot, open_snapshot(arguments.model, settings.engine, clock));
  timeline.mark("snapshot");
  Beside<Result<std::optional<LoadedTokenizer>>> tokenizer_phase(
      clock, [&] { return find_tokenizer(arguments, snapshot); });
  ASSIGN_OR_RETURN(const LocalEngine local,
                   load_local_engine(arguments.model, settings.engine, clock, timeline, snapshot));
  const LoadedEngine& loaded = local.loaded;
  ASSIGN_OR_RETURN(const std::optional<LoadedTokenizer> found,
                   tokenizer_phase.join(timeline, [](const auto& result) {
                     const bool any = result && *result;
                     return span_name(any ? (*result)->source : TokenizerSource::kFiles);
                   }));
  const Tokenizer* tokenizer = found ? &found->tokenizer : nullptr;
  timeline.mark("wait for tokenizer");
  ASSIGN_OR_RETURN(const std::vector<TokenId> prompt,
                   make_prompt(arguments, settings, tokenizer, snapshot));
  ASSIGN_OR_RETURN(const SharedAdapter adapter, find_adapter(loaded, arguments.model_name));
  SamplingParams sampling = settings.sampling;
  apply_defaults(arguments.sampling, loaded.generation, sampling);
  if (settings.grammar) {
    ASSIGN_OR_RETURN(sampling.grammar, compile_grammar(*settings.grammar, tokenizer, loaded));
  }
  timeline.mark("prompt");
  const WarmFacts facts = warm_facts(arguments.model, settings.engine, local);
  ASSIGN_OR_RETURN(const std::size_t warm, restore_stored_warm(facts, *loaded.engine, snapshot));
  if (warm > 0) timeline.mark("warm prompts");
  fmt::print(stderr, "{}\n", timeline.line());

  catch_interrupts();
  const auto stream = [&](std::int32_t choice, std::string_view text) {
    if (arguments.json || choice != 0) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  ASSIGN_OR_RETURN(
      const GenerationRecord record,
      run_request(*loaded.engine, make_request(loaded, prompt, sampling, adapter, clock.now()),
                  tokenizer, clock, Progress::kReport,
                  arguments.chat ? OutputText::kStandsAlone : OutputText::kContinuesPrompt,
                  stream));
  if (arguments.json) {
    print_json(prompt, record);
  } else {
    fmt::print("\n");
    print_other_choices(record);
  }
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", timing_line(prompt.size(), record));
  if (loaded.stream != nullptr) RETURN_IF_ERROR(loaded.stream->finish());
  snapshot.collect();
  snapshot.settle();
  return exit_code_of(record);
}

}  // namespace

int run_generate(const GenerateArguments& given) {
  const auto place = find_model(given.model, given.revision);
  if (!place) return report_error(place.error(), kExitError);
  GenerateArguments arguments = given;
  arguments.model = place->directory;
  auto settings = parse_settings(arguments);
  if (!settings) return report_error(settings.error(), kExitUsage);
  auto code = generate(arguments, *settings);
  if (!code) return report_error(code.error(), kExitError);
  return *code;
}

}  // namespace sluice
