// What a template does with the content of messages, found in its syntax tree. Pure.
#pragma once

#include "chat_template/ast.h"

namespace sluice::jinja {

// Whether there is a loop over `X.content` or `X['content']`, over a variable that was set to it,
// or over the parameter `content` of a macro. Looks at names alone: a heuristic, like vLLM's.
bool loops_over_content(const Template& parsed);

}  // namespace sluice::jinja
