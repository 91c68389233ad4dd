// Finds in the syntax tree how a template uses the content of messages. Pure function.
#pragma once

#include "chat_template/ast.h"

namespace sluice::jinja {

struct ContentUses {
  bool loops_over_it = false;
  bool asks_for_none = false;  // `X.content is none`, `== none`, `is not none`, `!= none`
};

// Follows `X.content` and `X['content']`, variables that are set to it (directly or through a few
// others) and the parameter `content` of macros. A heuristic by names alone, like vLLM's.
ContentUses analyse_content(const Template& parsed);

}  // namespace sluice::jinja
