// Answers that keep to a grammar, on the real engine with the demo model: every whole answer is a
// text of the grammar, and every cut one the beginning of such a text, whatever else happens.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/json.h"
#include "front/answer_grammar.h"
#include "front/served_model.h"
#include "grammar/grammar_matcher.h"
#include "tests/support/engine_fixture.h"

namespace sluice {
namespace {

using test::EngineFixture;
using test::Results;

class StructuredOutputTest : public testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options;
    options.max_num_seqs = 8;
    options.max_model_len = 256;
    options.block_size = 4;
    return options;
  }

  void start(const EngineOptions& options) {
    fixture_ = std::make_unique<EngineFixture>("models/demo", options, 2);
    auto model = load_served_model("models/demo", "demo", 1, facts_of(fixture_->loaded()));
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::make_unique<ServedModel>(*std::move(model));
  }

  TokenGrammarPtr grammar(GrammarKind kind, const std::string& text, JsonValue json = {}) {
    GrammarSpec spec;
    spec.kind = kind;
    spec.text = text;
    spec.json = std::move(json);
    auto compiled = compile_answer_grammar(*model_, std::move(spec), nullptr, false);
    EXPECT_TRUE(compiled) << compiled.error().message;
    return compiled ? *compiled : nullptr;
  }

  Request request(RequestId id, const TokenGrammarPtr& grammar) {
    Request request;
    request.id = id;
    request.prompt = *model_->tokenizer.encode("Once upon a time there was", {});
    request.sampling.max_tokens = 60;
    request.sampling.seed = id;
    request.sampling.n = 4;
    request.sampling.temperature = 1.5F;
    request.sampling.grammar = grammar;
    return request;
  }

  std::string text_of(const test::ChoiceResult& result) const {
    return model_->tokenizer.decode(result.tokens, SkipSpecialTokens::kYes);
  }

  // Checks all answers. Returns the number of whole ones.
  int check(const Results& results, const TokenGrammarPtr& grammar) {
    int whole = 0;
    for (const auto& [key, result] : results) {
      GrammarMatcher matcher;
      matcher.assign(grammar);
      const bool stopped = result.finish_reason == FinishReason::kStop;
      EXPECT_TRUE(stopped || result.finish_reason == FinishReason::kLength);
      for (std::size_t i = 0; i + (stopped ? 1 : 0) < result.tokens.size(); ++i) {
        EXPECT_TRUE(matcher.accept(result.tokens[i])) << text_of(result);
      }
      if (!stopped) continue;
      ++whole;
      EXPECT_TRUE(matcher.can_end()) << text_of(result);
    }
    return whole;
  }

  std::unique_ptr<EngineFixture> fixture_;
  std::unique_ptr<ServedModel> model_;
};

TEST_F(StructuredOutputTest, AnswersAreJsonWithSeveralChoicesAndTheirPrefixCached) {
  start(options());
  const TokenGrammarPtr object = grammar(GrammarKind::kJsonObject, "");
  for (RequestId id = 1; id <= 4; ++id) fixture_->add(request(id, object));
  Results results = fixture_->run_to_end();
  ASSERT_EQ(results.size(), 16U);
  check(results, object);
  int parsed = 0;
  for (const auto& [key, result] : results) {
    if (result.finish_reason != FinishReason::kStop) continue;
    const auto json = parse_json(text_of(result));
    EXPECT_TRUE(json.is_object()) << text_of(result);
    ++parsed;
  }
  EXPECT_GT(parsed, 0);
  // The prompt's blocks are cached now.
  fixture_->add(request(9, object));
  check(fixture_->run_to_end(), object);
}

TEST_F(StructuredOutputTest, PreemptedSequencesContinueTheirText) {
  EngineOptions scarce = options();
  scarce.decode_headroom = 0;
  scarce.max_model_len = 100;
  start(options());
  const TokenGrammarPtr words = grammar(GrammarKind::kRegex, "([a-z]{2,9} ){8,12}end");
  for (RequestId id = 1; id <= 2; ++id) fixture_->add(request(id, words));
  const Results calm = fixture_->run_to_end();
  const LoadedEngine& plenty = fixture_->loaded();
  const std::int64_t per_block = plenty.kv_bytes / std::max(plenty.kv_blocks, 1);
  scarce.kv_cache_memory = (fixture_->engine().kv().blocks_needed(100) + 5) * per_block;
  start(scarce);
  const TokenGrammarPtr again = grammar(GrammarKind::kRegex, "([a-z]{2,9} ){8,12}end");
  for (RequestId id = 1; id <= 2; ++id) fixture_->add(request(id, again));
  const Results results = fixture_->run_to_end();
  EXPECT_GT(fixture_->engine().stats().preemptions, 0) << "memory was not scarce enough";
  check(results, again);
  for (const auto& [key, result] : results) EXPECT_EQ(result.tokens, calm.at(key).tokens);
}

// Rows with log-probabilities are sampled token by token, so they are the oracle.
TEST_F(StructuredOutputTest, ForcedTokensAreThoseThatSamplingGives) {
  EngineOptions scarce = options();
  scarce.decode_headroom = 0;
  for (const bool starved : {false, true}) {
    start(options());
    if (starved) {
      const LoadedEngine& plenty = fixture_->loaded();
      const std::int64_t per_block = plenty.kv_bytes / std::max(plenty.kv_blocks, 1);
      scarce.max_model_len = 100;
      scarce.kv_cache_memory = (fixture_->engine().kv().blocks_needed(100) + 5) * per_block;
      start(scarce);
    }
    const TokenGrammarPtr grammars[] = {
        grammar(GrammarKind::kRegex, "([a-z]{2,9} ?){2,5}\\x01\\x02\\x03\\x04[ab]\\x05{30}"),
        grammar(GrammarKind::kRegex, "\\x01{3}(yes|no)\\x02{2,20}"),
        grammar(GrammarKind::kRegex, "x?\\x03{40}"),
    };
    const auto run = [&](int logprobs) {
      RequestId id = 1;
      for (const TokenGrammarPtr& one : grammars) {
        Request wanted = request(id++, one);
        wanted.sampling.logprobs = logprobs;
        wanted.sampling.repetition_penalty = 1.3F;
        wanted.sampling.min_tokens = 3;
        if (id == 3) wanted.sampling.max_tokens = 9;  // ends among forced tokens
        if (id == 4) wanted.sampling.ignore_eos = true;
        fixture_->add(wanted);
      }
      return fixture_->run_to_end();
    };
    const Results sampled = run(0);
    ASSERT_EQ(fixture_->engine().stats().forced_tokens, 0);
    const std::int64_t steps = fixture_->engine().stats().steps;
    const Results found = run(-1);
    EXPECT_GT(fixture_->engine().stats().forced_tokens, 100);
    EXPECT_LT(fixture_->engine().stats().steps - steps, starved ? 2 * steps : steps);
    if (starved) {
      EXPECT_GT(fixture_->engine().stats().preemptions, 0);
    }
    for (const auto& [key, result] : found) {
      EXPECT_EQ(result.tokens, sampled.at(key).tokens) << key.first << " " << key.second;
      EXPECT_EQ(result.finish_reason, sampled.at(key).finish_reason);
    }
    fixture_->engine().check_integrity();
  }
}

TEST_F(StructuredOutputTest, MasksIntersect) {
  start(options());
  JsonValue choices{JsonValue::Array{{std::string("boat")}, {std::string("fox")}}};
  const TokenGrammarPtr choice = grammar(GrammarKind::kChoice, "boat fox", choices);
  Request both = request(1, choice);
  both.sampling.min_tokens = 30;  // the text is over before that
  fixture_->add(both);
  Request one = request(2, choice);
  // Its first token alone: letters remain, so that every choice stays possible.
  one.sampling.bad_words = {{model_->tokenizer.encode("fox", {AddSpecialTokens::kNo})->front()}};
  fixture_->add(one);
  Request none = request(3, choice);
  none.sampling.allowed_token_ids = {model_->eos_ids.front()};
  fixture_->add(none);
  Request scored = request(4, choice);
  scored.sampling.logprobs = 2;
  fixture_->add(scored);
  std::set<std::string> texts;
  for (const auto& [key, result] : fixture_->run_to_end()) {
    const std::string text = text_of(result);
    if (key.first == 3) {
      EXPECT_EQ(result.finish_reason, FinishReason::kError) << text;
      continue;
    }
    EXPECT_EQ(result.finish_reason, FinishReason::kStop) << text;
    EXPECT_TRUE(text == "boat" || text == "fox") << text;
    if (key.first == 2) {
      EXPECT_NE(result.tokens.front(), one.sampling.bad_words[0][0]);
    }
    if (key.first == 4) {
      EXPECT_EQ(result.logprobs.size(), 3 * result.tokens.size());
    }
    texts.insert(text);
  }
  EXPECT_EQ(texts.size(), 2U);
}

TEST_F(StructuredOutputTest, WithoutAnEndOfSequenceTheTextIsFollowedByItAgain) {
  start(options());
  Request request = this->request(1, grammar(GrammarKind::kRegex, "yes|no"));
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 12;
  fixture_->add(request);
  for (const auto& [key, result] : fixture_->run_to_end()) {
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
    const std::string text = text_of(result);
    EXPECT_TRUE(text == "yes" || text == "no") << text;
  }
}

}  // namespace
}  // namespace sluice
