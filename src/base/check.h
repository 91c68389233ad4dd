// CHECK aborts the program in every build when one of the program's own invariants is broken.
// Errors from outside (clients, files, drivers, memory) return a Result instead. DCHECK is for
// costly checks; NDEBUG compiles it out.
#pragma once

namespace sluice {

// Prints "file:line: CHECK failed: expression" to stderr and aborts. Async-signal-safe.
[[noreturn]] void check_failed(const char* file, int line, const char* expression);

}  // namespace sluice

#define CHECK(condition)                                                                      \
  (__builtin_expect(!(condition), 0) ? ::sluice::check_failed(__FILE__, __LINE__, #condition) \
                                     : static_cast<void>(0))

#ifdef NDEBUG
#define DCHECK(condition) static_cast<void>(0)
#else
#define DCHECK(condition) CHECK(condition)
#endif
