// The tables of methods by type; find_method (callables.h) chooses.
#pragma once

#include <span>

#include "chat_template/builtins.h"

namespace sluice::jinja {

std::span<const Builtin> text_methods();

}  // namespace sluice::jinja
