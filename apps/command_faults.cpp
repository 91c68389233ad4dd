#include "apps/command_faults.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "base/nearest_name.h"
#include "base/text.h"

namespace sluice {

Status check_command(CLI::App& root, std::span<char* const> arguments) {
  CLI::App* command = &root;
  std::string before;  // "kv "
  for (std::size_t i = 0; command->get_require_subcommand_min() > 0; ++i) {
    const std::string given = i < arguments.size() ? arguments[i] : "";
    if (given.starts_with('-')) return {};
    std::vector<std::string> names;
    CLI::App* next = nullptr;
    for (CLI::App* known :
         command->get_subcommands([](CLI::App* app) { return !app->get_name().empty(); })) {
      names.push_back(before + known->get_name());
      if (known->get_name() == given) next = known;
    }
    if (next == nullptr) {
      const std::string fault = given.empty()
                                    ? std::string("a command is missing")
                                    : fmt::format("there is no command '{}{}'", before, given);
      return invalid_argument(fmt::format("{}; there {} {} (see --help)", fault,
                                          names.size() == 1 ? "is" : "are", join(names, ", ")));
    }
    command = next;
    before += given + " ";
  }
  return {};
}

std::string nearest_option(const CLI::App& command, std::string_view given) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::vector<std::string_view> known(names.begin(), names.end());
  return std::string(nearest_name(given.substr(0, given.find('=')), known));
}

Error leftover(const CLI::App& root) {
  const CLI::App* command = &root;
  std::string name = root.get_name();
  while (command->remaining().empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const std::vector<std::string> left = command->remaining();
  const auto option = std::find_if(left.begin(), left.end(), [](const std::string& argument) {
    return argument.starts_with('-') && argument != "--";
  });
  if (option != left.end()) {
    const std::string near = nearest_option(*command, *option);
    return invalid_argument(fmt::format("there is no option '{}'{} (see {} --help)", *option,
                                        near.empty() ? "" : "; did you mean '" + near + "'?",
                                        name));
  }
  return invalid_argument(
      fmt::format("'{}' was not expected (see {} --help)", join(left, " "), name));
}

}  // namespace sluice
