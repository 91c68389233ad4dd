// Finds, before a template runs, the same as jinja2's compiler: filters and tests that do not exist
// (an error unless they are inside a condition), and the macros that read `caller`, `kwargs` and
// `varargs`.
#pragma once

#include "base/result.h"
#include "chat_template/ast.h"

namespace sluice::jinja {

Status analyse_names(Template& parsed);

}  // namespace sluice::jinja
