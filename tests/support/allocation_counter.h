// Counts every operator new of a program that links allocation_counter.cpp, to prove that a loop
// allocates nothing. Threads: any; the count is exact once the loop's threads are joined.
#pragma once

#include <cstddef>

namespace sluice {

// Calls of operator new since the program started.
std::size_t allocation_count();

}  // namespace sluice
