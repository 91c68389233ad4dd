#include "server/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <vector>

#include "server/json_writer.h"

namespace sluice {
namespace {

// JSON has no infinity; a token that cannot be sampled has this value, as in vLLM.
constexpr float kLowestLogprob = -9999.0F;

void append_logprob(float logprob, std::string& out) {
  const bool shown = std::isfinite(logprob) && logprob > kLowestLogprob;
  append_json_float(shown ? logprob : kLowestLogprob, out);
}

// The fields of a token without the brackets.
void append_token(const TokenLogprobText& token, std::string& out) {
  out += R"("token":)";
  append_json_string(token.bytes, out);
  out += R"(,"logprob":)";
  append_logprob(token.logprob, out);
  out += R"(,"bytes":)";
  append_json_list(token.bytes, out,
                   [&](char c) { append_json_integer(static_cast<unsigned char>(c), out); });
}

void append_top_by_text(const OutputTokenLogprobs& token, std::string& out) {
  std::vector<std::string> seen;  // at most kMaxLogprobs + 1
  out += '{';
  const auto add = [&](const TokenLogprobText& item) {
    std::string key;
    append_json_string(item.bytes, key);
    if (std::ranges::find(seen, key) != seen.end()) return;
    if (!seen.empty()) out += ',';
    out += key;
    out += ':';
    append_logprob(item.logprob, out);
    seen.push_back(std::move(key));
  };
  for (const TokenLogprobText& item : token.top) add(item);
  add(token.chosen);
  out += '}';
}

// A JSON list with one item for each token.
template <class Append>
void append_each(const LogprobList& tokens, std::string& out, Append append) {
  OutputTokenLogprobs token;
  append_json_list(std::views::iota(std::size_t{0}, tokens.size), out, [&](std::size_t i) {
    tokens.get(i, token);
    append(token);
  });
}

}  // namespace

void append_chat_logprobs(const LogprobList& tokens, std::string& out) {
  out += R"({"content":)";
  append_each(tokens, out, [&](const OutputTokenLogprobs& token) {
    out += '{';
    append_token(token.chosen, out);
    out += R"(,"top_logprobs":)";
    append_json_list(token.top, out, [&](const TokenLogprobText& item) {
      out += '{';
      append_token(item, out);
      out += '}';
    });
    out += '}';
  });
  out += R"(,"refusal":null})";
}

void append_completion_logprobs(const LogprobList& tokens, std::string& out) {
  using Token = OutputTokenLogprobs;
  out += R"({"text_offset":)";
  append_each(tokens, out,
              [&](const Token& token) { append_json_integer(token.text_offset, out); });
  out += R"(,"token_logprobs":)";
  append_each(tokens, out, [&](const Token& token) {
    token.has_logprob ? append_logprob(token.chosen.logprob, out) : void(out += "null");
  });
  out += R"(,"tokens":)";
  append_each(tokens, out,
              [&](const Token& token) { append_json_string(token.chosen.bytes, out); });
  out += R"(,"top_logprobs":)";
  append_each(tokens, out, [&](const Token& token) {
    token.has_logprob ? append_top_by_text(token, out) : void(out += "null");
  });
  out += '}';
}

std::size_t logprobs_json_bound(ApiKind kind, const LogprobList& tokens) {
  constexpr std::size_t kEscaped = 6;  // \u0001 for one byte, U+FFFD for half a character
  constexpr std::size_t kByte = 4;     // "255,"
  constexpr std::size_t kFields = 80;  // names, brackets, the number
  const auto entry = [&](const TokenLogprobText& text) {
    return kFields + (kEscaped + (kind == ApiKind::kChat ? kByte : 0)) * text.bytes.size();
  };
  std::size_t bytes = kFields;
  OutputTokenLogprobs token;
  for (std::size_t i = 0; i < tokens.size; ++i) {
    tokens.get(i, token);
    bytes += 2 * entry(token.chosen);  // completions repeat it among the top ones
    for (const TokenLogprobText& item : token.top) bytes += entry(item);
  }
  return bytes;
}

void append_prompt_logprobs(const PromptLogprobList& tokens, std::string& out) {
  std::vector<RankedLogprob> entries;
  const auto append_entry = [&](const RankedLogprob& entry) {
    out += '"';
    append_json_integer(entry.token.id, out);
    out += R"(":{"logprob":)";
    append_logprob(entry.token.logprob, out);
    out += R"(,"rank":)";
    append_json_integer(entry.rank, out);
    out += R"(,"decoded_token":)";
    append_json_string(entry.token.bytes, out);
    out += '}';
  };
  append_json_list(std::views::iota(std::size_t{0}, tokens.size), out, [&](std::size_t i) {
    tokens.get(i, entries);
    if (entries.empty()) {
      out += "null";
      return;
    }
    out += '{';
    for (const RankedLogprob& entry : entries) {
      const bool first = &entry == entries.data();
      if (!first && entry.token.id == entries.front().token.id) continue;
      if (!first) out += ',';
      append_entry(entry);
    }
    out += '}';
  });
}

std::size_t prompt_logprobs_json_bound(const PromptLogprobList& tokens) {
  constexpr std::size_t kEscaped = 6;
  constexpr std::size_t kFields = 96;  // names, brackets, three numbers
  std::size_t bytes = kFields;
  std::vector<RankedLogprob> entries;
  for (std::size_t i = 0; i < tokens.size; ++i) {
    tokens.get(i, entries);
    bytes += kFields;
    for (const RankedLogprob& entry : entries)
      bytes += kFields + kEscaped * entry.token.bytes.size();
  }
  return bytes;
}

}  // namespace sluice
