// Compiles the grammar that an answer keeps to, for the tokens of a model.
// Threads: a worker's, since this may take tens of milliseconds.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/stop_check.h"
#include "front/reasoning_stream.h"
#include "front/served_model.h"
#include "grammar/grammar_compiler.h"

namespace sluice {

// If the answer may have reasoning (not null), it comes before the text of the grammar.
// Errors: those of GrammarCompiler::compile().
Result<TokenGrammarPtr> compile_answer_grammar(const ServedModel& model, GrammarSpec spec,
                                               const ReasoningFormat* reasoning, bool inside,
                                               const StopCheck& stop = {});

// The same for a whole output without reasoning, for the command line.
Result<TokenGrammarPtr> compile_output_grammar(const Tokenizer& tokenizer, std::int32_t vocab_size,
                                               const GrammarSpec& spec);

}  // namespace sluice
