// Source text to tokens, with jinja2's rules for whitespace around tags as transformers sets them:
// trim_blocks (a newline after a block tag is dropped) and lstrip_blocks (blanks before a block
// tag on its line are dropped), `-` and `+` signs, raw blocks and comments.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat_template/heap.h"
#include "chat_template/value.h"

namespace sluice::jinja {

enum class TokenType : std::uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kNumber,    // integer or float; the value is in `constant`
  kOperator,  // its text tells which
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string_view text;  // data, name, operator or the decoded string
  Value constant;
};

// The text of tokens points into `source` or `heap`, which must outlive them. `source` has only
// "\n" as line end (normalize_newlines). Errors read "line N: what is wrong".
Result<std::vector<Token>> tokenize(std::string_view source, Heap& heap);

// "\r\n" and "\r" become "\n"; one newline at the end of the template is dropped, as jinja2 does.
std::string normalize_newlines(std::string_view source);

// An error of the template's text: "line N: message".
Error syntax_error(int line, std::string_view message);

}  // namespace sluice::jinja
