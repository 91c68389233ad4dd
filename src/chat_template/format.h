// Python's string formatting: "%s" % x, "{}".format(x) and the format specs of both.
#pragma once

#include "base/result.h"
#include "chat_template/object.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class Interpreter;

// REQUIRES: format is a string.
Result<Value> format_percent(Interpreter& interpreter, Value format, Value argument);
Result<Value> format_braces(Interpreter& interpreter, Value format, const CallArgs& args);

}  // namespace sluice::jinja
