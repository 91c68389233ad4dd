#include "server/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "server/json_writer.h"

namespace sluice {
namespace {

// JSON has no infinity; what cannot be sampled has this, as in vLLM.
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

}  // namespace

void append_chat_logprobs(std::span<const OutputTokenLogprobs> tokens, std::string& out) {
  out += R"({"content":)";
  append_json_list(tokens, out, [&](const OutputTokenLogprobs& token) {
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

void append_completion_logprobs(std::span<const OutputTokenLogprobs> tokens, std::string& out) {
  using Token = OutputTokenLogprobs;
  out += R"({"text_offset":)";
  append_json_list(tokens, out,
                   [&](const Token& token) { append_json_integer(token.text_offset, out); });
  out += R"(,"token_logprobs":)";
  append_json_list(tokens, out,
                   [&](const Token& token) { append_logprob(token.chosen.logprob, out); });
  out += R"(,"tokens":)";
  append_json_list(tokens, out,
                   [&](const Token& token) { append_json_string(token.chosen.bytes, out); });
  out += R"(,"top_logprobs":)";
  append_json_list(tokens, out, [&](const Token& token) { append_top_by_text(token, out); });
  out += '}';
}

}  // namespace sluice
