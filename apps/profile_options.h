// Declares the options of `sluice profile` to CLI11, for apps/command_line.cpp. One thread.
#pragma once

#include "apps/profile.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace sluice {

CLI::App* add_profile(CLI::App& root, ProfileArguments& arguments);

}  // namespace sluice
