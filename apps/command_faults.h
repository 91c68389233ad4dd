// Errors of commands and options that CLI11's own messages do not name. Functions; one thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace CLI {
class App;
}

namespace sluice {

// An error unless the arguments begin with a command, or with an option where a command is due.
// CLI11's own message names neither the argument nor the commands.
Status check_command(CLI::App& root, std::span<char* const> arguments);

// The option of the command that `given` may have meant; empty: none.
std::string nearest_option(const CLI::App& command, std::string_view given);

// An unknown option, with its value behind it, or one argument too many. CLI11's own message lists
// all of them backwards.
Error leftover(const CLI::App& root);

}  // namespace sluice
