// Which names of a scope start out undefined. jinja2 decides before it runs where a name lives:
// a name that a scope sets before anything in it reads it belongs to that scope from its start, so
// an earlier read inside (a set block that reads its own target, say) does not see the context.
#pragma once

#include "chat_template/ast.h"

namespace sluice::jinja {

// Fills Template::hidden, Stmt::hidden and Stmt::else_hidden.
void analyse_scopes(Template& parsed);

}  // namespace sluice::jinja
