// GrammarCompiler: compiles what requests ask for into grammars of a model's tokens, and keeps
// recent ones. The tree of the model's tokens is built at the first use.
// Threads: any; two threads that ask for the same new grammar both compile it. Callers are workers:
// a grammar may take as long as its limits allow (the stop check can end it). Memory: at most
// kMaxGrammars recent grammars, beside the masks that token_grammar.h and state_masks.h bound.
// The cache is shared by all clients: the time of an answer may tell that another client used the
// same grammar a while ago, but nothing of its prompts and answers.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/function_ref.h"
#include "base/hash128.h"
#include "base/json_document.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "grammar/tagged_grammar.h"
#include "grammar/token_grammar.h"

namespace sluice {

enum class GrammarKind : std::uint8_t { kJsonSchema, kJsonObject, kRegex, kChoice, kGbnf, kTagged };

// Text that a model may write before the answer that the grammar is about: its reasoning.
struct ReasoningLead {
  std::string begin;
  std::string end;
  bool inside = false;  // the prompt has the first marker already
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;        // names the grammar in the cache: the expression, or the JSON as text
  JsonValue json;          // the schema, or the array of choices
  std::string begin = {};  // a literal in front of the text of the grammar, not of calls
  TaggedAnswer tagged;
  // Calls of tools that the answer may be instead, with a text that names them in the cache.
  std::optional<TaggedAnswer> calls;
  std::string calls_text;
  std::optional<ReasoningLead> lead;
};

class GrammarCompiler {
 public:
  static constexpr std::size_t kMaxGrammars = 64;
  static constexpr std::size_t kMaxChoices = 10'000;

  // From now on compile() makes the images of grammars (TokenGrammar::image()), so that the thread
  // that sends them to function processes does not. Call it before the first use.
  void make_images() { makes_images_ = true; }

  // `tokens` is called at the first use only. Errors: kInvalidArgument, saying what is wrong with
  // the grammar; the error of `stop`.
  Result<TokenGrammarPtr> compile(const GrammarSpec& spec, FunctionRef<TokenTrie()> tokens,
                                  const StopCheck& stop = {});

 private:
  GrammarVocabularyPtr vocabulary(FunctionRef<TokenTrie()> tokens);
  TokenGrammarPtr find(const Hash128& key);
  void keep(const Hash128& key, const TokenGrammarPtr& grammar);

  bool makes_images_ = false;
  std::mutex vocabulary_mutex_;
  GrammarVocabularyPtr vocabulary_;

  using Entry = std::pair<Hash128, TokenGrammarPtr>;
  std::mutex mutex_;
  std::list<Entry> recent_;  // the last used first
  std::unordered_map<Hash128, std::list<Entry>::iterator> by_key_;
};

// The grammar of a spec, without a vocabulary.
Result<Grammar> make_grammar(const GrammarSpec& spec);

}  // namespace sluice
