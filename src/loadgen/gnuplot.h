// Runs the program gnuplot on scripts and data in a folder. It uses no shell: the folder is the
// program's working directory, and the script is a file name in it.
// Blocks its thread until gnuplot has ended.
#pragma once

#include <string>

#include "base/result.h"

namespace sluice {

// kUnsupported, naming the package, when gnuplot is not installed; kInternal with its output when
// it failed. `program`: looked up in PATH.
Status run_gnuplot(const std::string& folder, const std::string& script,
                   const std::string& program = "gnuplot");

}  // namespace sluice
