// The cost of adapters: all matrix products of some layers, followed by LoRA and without, timed by
// turns on one device. Owner: ops_bench. Threads: one.
#pragma once

#include <string>

#include "device/device.h"

namespace sluice::bench {

// Steps of an 8B model; of a 1B model on the CPU. `small` divides the shapes by 16: to try the
// program.
void print_lora(Device& device, bool small);
// The same for "cpu" or "cuda:N"; returns the exit code.
int print_lora_table(const std::string& device, bool small);

}  // namespace sluice::bench
