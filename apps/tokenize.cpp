#include "apps/tokenize.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/chat_file.h"
#include "apps/exit_code.h"
#include "apps/open_snapshot.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "front/text_sections.h"
#include "model/model_files.h"
#include "tokenizer/tokenize_lines.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMaxChatBytes = std::uint64_t{64} << 20;

void print_object(const std::string& text, const std::vector<TokenId>& ids) {
  const ordered_json object = {{"text", text}, {"ids", ids}};
  fmt::print("{}\n", dump_json(object));
}

Status tokenize_chat(const TokenizeArguments& arguments, const Tokenizer& tokenizer,
                     Snapshot& snapshot) {
  ASSIGN_OR_RETURN(const std::string chat, read_file(*arguments.chat, kMaxChatBytes));
  ASSIGN_OR_RETURN(const ChatTemplates templates, load_chat_templates(arguments.model, snapshot));
  ASSIGN_OR_RETURN(const ChatPrompt prompt,
                   chat_prompt_from_json(templates, chat, *arguments.chat, tokenizer));
  print_object(prompt.text, prompt.ids);
  return {};
}

Result<std::string> read_stdin() {
  std::string text;
  std::array<char, 1 << 16> part;
  do {
    std::cin.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(std::cin.gcount()));
  } while (std::cin);
  if (std::cin.bad()) return unavailable("stdin: cannot be read to its end");
  return text;
}

Status tokenize_text(const TokenizeArguments& arguments, const Tokenizer& tokenizer,
                     const EncodeOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, read_stdin());
  auto ids = tokenizer.encode(text, options);
  if (!ids) return with_context("stdin", std::move(ids).error());
  if (arguments.json) {
    print_object(text, *ids);
  } else {
    fmt::print("{}\n", join(*ids, " "));
  }
  return {};
}

// A tokenizer alone, without a model, has no snapshot unless the user names one.
Result<Snapshot> find_snapshot(const TokenizeArguments& arguments, const Clock& clock) {
  const SnapshotChoice choice = parse_snapshot_choice(arguments.snapshot);
  std::error_code ignored;
  const bool has_model = is_gguf_model(arguments.model) ||
                         std::filesystem::exists(arguments.model + "/config.json", ignored);
  if (choice.mode == SnapshotMode::kAuto && !has_model) return Snapshot();
  return open_snapshot(arguments.model, choice, clock);
}

Status tokenize_input(const TokenizeArguments& arguments, const Tokenizer& tokenizer,
                      Snapshot& snapshot) {
  EncodeOptions options;
  if (arguments.no_special) options.add_special_tokens = AddSpecialTokens::kNo;
  std::ios::sync_with_stdio(false);
  if (arguments.chat) return tokenize_chat(arguments, tokenizer, snapshot);
  if (arguments.jsonl) {
    auto status = tokenize_lines(tokenizer, options, std::cin, std::cout);
    if (!status) return with_context("stdin", std::move(status).error());
    return {};
  }
  return tokenize_text(arguments, tokenizer, options);
}

Status tokenize(const TokenizeArguments& arguments) {
  const SystemClock clock;
  ASSIGN_OR_RETURN(Snapshot snapshot, find_snapshot(arguments, clock));
  ASSIGN_OR_RETURN(const LoadedTokenizer loaded, load_tokenizer(arguments.model, snapshot));
  RETURN_IF_ERROR(tokenize_input(arguments, loaded.tokenizer, snapshot));
  std::cout.flush();
  snapshot.collect();
  snapshot.settle();
  return {};
}

}  // namespace

int run_tokenize(const TokenizeArguments& arguments) {
  if (auto status = tokenize(arguments); !status) return report_error(status.error(), kExitError);
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    return report_error(internal_error("stdout could not be written"), kExitError);
  }
  return kExitSuccess;
}

}  // namespace sluice
