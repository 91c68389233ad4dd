// Settings of a sandbox, for the parent's half (spawn.h) and the child's half (enter.h).
// Threads: plain values; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "sandbox/report.h"

namespace sluice {

struct SandboxOptions {
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;  // resident, including its shared pages
  unsigned max_tasks = 32;                              // threads and processes together
  double cpu_cores = 1.0;                               // CPU seconds per second
  unsigned max_descriptors = 64;
  // The user and group id outside of the sandbox, if the parent is root. Two functions with the
  // same id are still apart by their namespaces.
  unsigned user_id = 65534;
  // Layers that are not built; the report lists them as missing. Tests use it to show that the
  // other layers hold alone.
  std::vector<Layer> without;
};

// Whether the options leave `layer` out.
bool leaves_out(const SandboxOptions& options, Layer layer);

}  // namespace sluice
