// What jinja2's compiler finds out before a template runs: filters and tests that do not exist
// (an error at once, unless they stand under a condition), and which macros read `caller`,
// `kwargs` and `varargs`.
#pragma once

#include "base/result.h"
#include "chat_template/ast.h"

namespace sluice::jinja {

Status analyse_names(Template& parsed);

}  // namespace sluice::jinja
