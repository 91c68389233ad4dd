// AMX's tile registers in software, so that the kernels for them are tested on CPUs without them.
// Such a CPU refuses the instructions of src/device/cpu/kernels/tile_registers.h by SIGILL, whose
// handler carries them out: the kernels are the same machine code that runs on tile registers.
// Uses that a CPU with AMX would refuse, such as a tile that is not configured or shapes that do
// not fit, end the process with the reason.
// Source: Intel's Software Developer's Manual, volume 2. tests/parity/matmul_tiles_test.cpp found
// the order of sums to be that of a CPU with AMX.
// Threads: any; each has its own registers.
#pragma once

#include <vector>

#include "device/cpu/cpu_isa.h"

namespace sluice::test {

// All instruction sets whose kernels can be tested here: those of this machine, and kAmx from
// emulated tile registers where only these are missing.
std::vector<CpuIsa> tested_cpu_isas();

}  // namespace sluice::test
