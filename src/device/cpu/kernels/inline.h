// Forced inlining for kernel code. Without it, the linker could keep a copy that was compiled for a
// newer instruction set and call it from code for older machines.
#pragma once

#define SLUICE_INLINE __attribute__((always_inline)) inline
