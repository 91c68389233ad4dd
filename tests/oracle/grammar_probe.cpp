// grammar_probe: answers questions of the oracles in tests/oracle about grammars. It reads lines of
// JSON from standard input and writes a line of JSON for each:
//   {"schema": S, "walks": N, "seed": K}   random texts of the schema, over a small vocabulary
//   {"schema": S, "texts": [T, ...]}       times of masks along the texts (with --tokenizer)
//   {"vocabulary": true}                   the bytes of all tokens, in hexadecimal
// Errors of a schema are answered as {"error": "..."}.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "grammar/grammar_compiler.h"
#include "grammar/grammar_matcher.h"
#include "server/json_writer.h"
#include "server/request_json.h"
#include "tokenizer/tokenizer.h"

namespace {

using sluice::GrammarMatcher;
using sluice::JsonValue;
using sluice::TokenGrammarPtr;
using sluice::TokenId;

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// Bytes, and some tokens that hold several marks of JSON.
std::vector<std::string> small_vocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"{\"", "\":", "\": ",  "\",",      "\", \"",   "\"}", "\"]", "}}",
                           "]}",  "},",  "true",  "null",     "name",     "ab",  "12",  "-1",
                           "0.5", "\\n", "\\u00", "\xC3\xA4", "\xE4\xBD", "a\"", "99"}) {
    tokens.emplace_back(word);
  }
  return tokens;
}

std::vector<std::string> real_vocabulary(const sluice::Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    tokens.push_back(tokenizer.is_special(id) ? std::string() : tokenizer.token_bytes(id));
  }
  return tokens;
}

// A text of the grammar, or nothing if it has not ended after many tokens. Tokens that close
// something are preferred, so that most texts end.
std::optional<std::string> random_text(const TokenGrammarPtr& grammar, std::uint64_t seed) {
  sluice::SplitMix64 random(seed);
  GrammarMatcher matcher;
  matcher.assign(grammar);
  std::string text;
  std::vector<std::uint32_t> mask(grammar->trie().mask_words());
  for (int step = 0; step < 600; ++step) {
    if (matcher.can_end() && random.below(4) == 0) return text;
    matcher.fill(mask);
    std::vector<TokenId> allowed;
    std::vector<TokenId> closing;
    for (TokenId id = 0; id < grammar->trie().vocab_size(); ++id) {
      if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) == 0) continue;
      allowed.push_back(id);
      if (std::string_view("\"}]").find(grammar->trie().bytes(id)[0]) != std::string_view::npos) {
        closing.push_back(id);
      }
    }
    if (allowed.empty()) {
      if (matcher.can_end()) return text;
      return "STUCK: " + text;
    }
    const bool close = !closing.empty() && random.below(5) < 2;
    const std::vector<TokenId>& from = close ? closing : allowed;
    const TokenId token = from[random.below(from.size())];
    if (!matcher.accept(token)) return "REFUSED: " + text;
    text += grammar->trie().bytes(token);
  }
  return std::nullopt;
}

struct Probe {
  std::optional<sluice::Tokenizer> tokenizer;
  std::vector<std::string> tokens;
  sluice::GrammarCompiler compiler;

  std::string times_along(const TokenGrammarPtr& grammar, const std::string& text) {
    std::string out = "[";
    GrammarMatcher matcher;
    matcher.assign(grammar);
    std::vector<std::uint32_t> mask(grammar->trie().mask_words());
    const auto ids = tokenizer->encode(text, {sluice::AddSpecialTokens::kNo});
    for (const TokenId id : *ids) {
      const auto start = std::chrono::steady_clock::now();
      matcher.fill(mask);
      const bool accepted = matcher.accept(id);
      const double took = microseconds_since(start);
      const bool allowed = (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) != 0;
      if (!accepted || !allowed) return "null";
      out += fmt::format("{}{:.2f}", out.size() > 1 ? "," : "", took);
    }
    return out + "]";
  }

  std::string answer(const JsonValue::Object& question) {
    if (sluice::find_member(question, "vocabulary") != nullptr) {
      std::string out = "{\"vocabulary\":[";
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        out += i > 0 ? ",\"" : "\"";
        for (const char c : tokens[i]) {
          out += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        }
        out += '"';
      }
      return out + "]}";
    }
    sluice::GrammarSpec spec;
    spec.kind = sluice::GrammarKind::kJsonSchema;
    spec.json = *sluice::find_member(question, "schema");
    sluice::append_json(spec.json, spec.text);
    const auto start = std::chrono::steady_clock::now();
    const auto grammar = compiler.compile(
        spec, [&] { return sluice::TokenTrie(tokens, static_cast<std::int32_t>(tokens.size())); });
    const double compiled = microseconds_since(start);
    std::string out = "{";
    if (!grammar) {
      out += "\"error\":";
      sluice::append_json_string(grammar.error().message, out);
      return out + "}";
    }
    out += fmt::format("\"compile_us\":{:.1f}", compiled);
    if (const JsonValue* texts = sluice::find_member(question, "texts")) {
      out += ",\"times_us\":[";
      for (std::size_t i = 0; i < texts->array()->size(); ++i) {
        out += (i > 0 ? "," : "") + times_along(*grammar, *(*texts->array())[i].string());
      }
      return out + fmt::format("],\"late_masks\":{}}}", (*grammar)->late_masks());
    }
    const std::int64_t walks = *sluice::find_member(question, "walks")->integer();
    const std::int64_t seed = *sluice::find_member(question, "seed")->integer();
    out += ",\"texts\":[";
    bool first = true;
    for (std::int64_t i = 0; i < walks; ++i) {
      const auto text = random_text(*grammar, static_cast<std::uint64_t>(seed * 1'000 + i));
      if (!text) continue;
      if (!first) out += ',';
      first = false;
      sluice::append_json_string(*text, out);
    }
    return out + "]}";
  }
};

}  // namespace

int main(int argc, char** argv) {
  Probe probe;
  if (argc == 3 && std::string_view(argv[1]) == "--tokenizer") {
    auto tokenizer = sluice::Tokenizer::load(argv[2]);
    if (!tokenizer) {
      fmt::print(stderr, "{}\n", tokenizer.error().message);
      return 1;
    }
    probe.tokenizer = *std::move(tokenizer);
    probe.tokens = real_vocabulary(*probe.tokenizer);
  } else if (argc == 1) {
    probe.tokens = small_vocabulary();
  } else {
    fmt::print(stderr, "usage: grammar_probe [--tokenizer FOLDER_OR_FILE]\n");
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const auto question = sluice::read_json_or_explain(line);
    if (!question || question->object() == nullptr) {
      fmt::print(stderr, "a line is not a JSON object\n");
      return 1;
    }
    std::cout << probe.answer(*question->object()) << '\n' << std::flush;
  }
  return 0;
}
