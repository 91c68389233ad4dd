#include "chat_template/builtins.h"

#include <algorithm>
#include <array>
#include <string>

#include "chat_template/ops.h"
#include "chat_template/text.h"

namespace sluice::jinja {

namespace {

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const auto table : {text_filters(), sequence_filters(), number_filters()}) {
    if (const Builtin* found = find_in(table, name)) return found;
  }
  return nullptr;
}

const Builtin* find_test(std::string_view name) { return find_in(all_tests(), name); }

Result<std::vector<Value>> bind_arguments(std::string_view function, std::string_view parameters,
                                          const CallArgs& args) {
  std::vector<Value> bound;
  if (parameters == "*") return bound;
  std::vector<KeywordArg> keyword(args.keyword.begin(), args.keyword.end());
  if (parameters.ends_with(" /")) {
    if (!keyword.empty()) {
      return type_error(std::string(function) + "() takes no keyword arguments");
    }
    parameters.remove_suffix(2);
  }
  std::size_t used = 0;
  for (std::string_view rest = parameters; !rest.empty();) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    std::string_view name = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    Value value;
    if (used < args.positional.size()) {
      value = args.positional[used++];
      for (const KeywordArg& given : keyword) {
        if (given.first == name) {
          return type_error(std::string(function) + "() got multiple values for argument " +
                            quote(name));
        }
      }
    } else {
      const auto given = std::find_if(keyword.begin(), keyword.end(),
                                      [&](const KeywordArg& k) { return k.first == name; });
      if (given != keyword.end()) {
        value = given->second;
        keyword.erase(given);
      } else if (!optional) {
        return type_error(std::string(function) +
                          "() missing 1 required positional argument: " + quote(name));
      }
    }
    bound.push_back(value);
  }
  if (used < args.positional.size()) {
    return type_error(std::string(function) + "() takes " + std::to_string(bound.size()) +
                      " positional arguments but " + std::to_string(args.positional.size()) +
                      " were given");
  }
  if (!keyword.empty()) {
    return type_error(std::string(function) + "() got an unexpected keyword argument " +
                      quote(keyword.front().first));
  }
  return bound;
}

Result<Value> call_builtin(Interpreter& interpreter, const Builtin& builtin, const CallArgs& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> bound,
                   bind_arguments(builtin.name, builtin.parameters, args));
  return builtin.function(interpreter, BuiltinArgs{bound, args});
}

}  // namespace sluice::jinja
