// What a template does with the content of messages, found in its syntax tree. Pure.
#pragma once

#include "chat_template/ast.h"

namespace sluice::jinja {

struct ContentUses {
  bool loops_over_it = false;
  bool asks_for_none = false;  // `X.content is none`, `== none`, `is not none`, `!= none`
};

// What becomes of `X.content` or `X['content']`, of variables that were set to it (through a few
// others at most), and of the parameter `content` of a macro. Looks at names alone: a heuristic,
// like vLLM's.
ContentUses analyse_content(const Template& parsed);

}  // namespace sluice::jinja
