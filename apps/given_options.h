// Checks of the given options that the parser of the command line does not make. Errors name the
// option.
// Pure; any thread.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <initializer_list>
#include <string>

#include "apps/config_file.h"
#include "base/result.h"

namespace sluice {

// The parser checks this for the command line only.
inline Status check_excluded(const ConfigEntry& entry, const CLI::Option& option) {
  for (const CLI::Option* other : option.get_excludes()) {
    if (other->count() == 0) continue;
    return invalid_argument(fmt::format("{}: {} and {} exclude each other", entry.where,
                                        option.get_name(), other->get_name()));
  }
  return {};
}

// An empty value, such as --kv-disk "$KV" where KV is not set, would count as if the option were
// not given. Commands that were not parsed have no values.
inline Status check_values(std::initializer_list<const CLI::App*> commands) {
  for (const CLI::App* command : commands) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->nonpositional() && std::ranges::count(option->results(), std::string()) > 0) {
        return invalid_argument(
            fmt::format("{} has an empty value; leave it out or give one", option->get_name()));
      }
    }
  }
  return {};
}

}  // namespace sluice
