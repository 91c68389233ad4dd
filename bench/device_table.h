// Ops timed on a device at the shapes of an 8B model (Llama 3), as a table: what each reads and
// computes a second, and how that compares with copying memory and with the largest product.
// Owner: ops_bench --device. Threads: one.
#pragma once

#include <string>

namespace sluice::bench {

// Prints the table for "cpu" or "cuda:N"; returns the exit code. `small` divides the shapes by 16:
// to try the program, not to learn anything.
int print_device_table(const std::string& device, bool small);

}  // namespace sluice::bench
