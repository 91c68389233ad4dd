// Runs an adapter of tests/golden/adapters through a whole engine, beside requests of the base
// model, and compares greedy tokens and log-probabilities with PEFT's. Threads: the engine's.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace sluice::test {

// `device`: null for the CPU. `sealed`: the engine computes on the adapter in shared memory, as
// function processes do.
void expect_results_of_peft(const std::string& name, bool sealed,
                            std::unique_ptr<Device> device = nullptr);

}  // namespace sluice::test
