// Finds the names of a scope that start out undefined. jinja2 decides this before a template runs:
// a name that a scope sets before it reads it belongs to the scope from its start. An earlier read
// inside the scope (a set block that reads its own target, say) does not see the context.
#pragma once

#include "chat_template/ast.h"

namespace sluice::jinja {

// Fills Template::hidden, Stmt::hidden and Stmt::else_hidden.
void analyse_scopes(Template& parsed);

}  // namespace sluice::jinja
