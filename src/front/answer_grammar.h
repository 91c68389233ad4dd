// Compiles the grammar that an answer keeps to, for the tokens of a model.
// Threads: a worker's, since this may take tens of milliseconds.
#pragma once

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

}  // namespace sluice
