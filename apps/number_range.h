// A check of an option's value for the command line. Pure; any thread.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice {

// A number from `least` to `most`. Unlike CLI::Range it refuses nan.
CLI::Validator number_between(double least, double most);

}  // namespace sluice
