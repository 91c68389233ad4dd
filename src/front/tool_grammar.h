// The grammar of answers that call tools, in a model's format of calls: every call names one of the
// tools, and its arguments are valid for the tool's schema.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json_document.h"
#include "base/result.h"
#include "front/tool_format.h"
#include "grammar/tagged_grammar.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

// The part of a request that decides about calls.
struct ToolChoice {
  bool required = false;  // the answer is calls; else it may be text, calls, or text and then calls
  std::string name = {};  // with `required`: the only tool that is called; empty: any
  bool parallel = true;   // more than one call

  friend bool operator==(const ToolChoice&, const ToolChoice&) = default;
};

// Whether a grammar is needed: a call is required, calls are limited, or a tool is strict.
// `tools`: the request's array of functions.
bool needs_tool_grammar(const JsonValue& tools, const ToolChoice& choice);

// Without `choice.required`, the schemas of tools that are not strict are not enforced.
// Errors: a tool that grammars cannot hold, by its name.
Result<TaggedAnswer> tool_grammar(const Tokenizer& tokenizer, const ToolFormat& format,
                                  const JsonValue& tools, const ToolChoice& choice);

// The bytes of a token to grammars: of a special token kSpecialTokenMark and its text. Empty for an
// ordinary token that has the byte kSpecialTokenMark, which no text has.
std::string grammar_bytes(const Tokenizer& tokenizer, TokenId token);
// A text as a literal of grammars: special tokens in it are these tokens alone, not their text.
Result<std::string> grammar_literal(const Tokenizer& tokenizer, std::string_view text);

}  // namespace sluice
