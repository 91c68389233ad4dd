// The tables of filters and tests: name, parameters and function of each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat_template/object.h"
#include "chat_template/value.h"

namespace sluice::jinja {

class Interpreter;

// Arguments bound to parameters: `bound[i]` is kMissing where parameter i was not given. With "*"
// parameters the function reads `raw` instead.
struct BuiltinArgs {
  std::span<const Value> bound;
  const CallArgs& raw;
  Value operator[](std::size_t i) const { return bound[i]; }
};

struct Builtin {
  std::string_view name;
  // "s width? first?": with ? optional; "*" alone: any; " /" at the end: no keywords
  std::string_view parameters;
  Result<Value> (*function)(Interpreter&, const BuiltinArgs&);
};

const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);

// Binds and calls. REQUIRES: the first positional argument is the filtered or tested value.
Result<Value> call_builtin(Interpreter& interpreter, const Builtin& builtin, const CallArgs& args);

// Binds arguments to the parameters of a spec as in Builtin; TypeError where Python raises one.
Result<std::vector<Value>> bind_arguments(std::string_view function, std::string_view parameters,
                                          const CallArgs& args);

// The parts of the filter table, one per file.
std::span<const Builtin> text_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> all_tests();

}  // namespace sluice::jinja
