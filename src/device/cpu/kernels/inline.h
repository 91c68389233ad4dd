// Forced inlining for kernel code: a function that was compiled with the flags of an instruction
// set and not inlined could be the copy that the linker keeps for everybody.
#pragma once

#define SLUICE_INLINE __attribute__((always_inline)) inline
