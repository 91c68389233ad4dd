// The layers of a sandbox and which of them hold.
// A report lists each layer at most once; a layer without an entry counts as missing. The parent's
// and the child's reports are merged, because each of them builds a part of the layers.
// Threads: plain values; any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class Layer {
  // Built by the parent (spawn.h).
  kUser,         // own user namespace or own user id
  kProcesses,    // own pid namespace: no other process can be named
  kMemoryLimit,  // control group: resident memory
  kTaskLimit,    // control group: threads and processes
  kCpuLimit,     // control group: share of the cores
  // Built by the child (enter.h).
  kNetwork,      // empty network namespace
  kIpc,          // own namespace of System V IPC and message queues
  kHostName,     // own UTS namespace
  kMounts,       // own mount namespace with an empty, read-only root
  kDump,         // no core files; other processes of the user cannot attach
  kPrivileges,   // no capabilities, no_new_privs
  kLandlock,     // no path, no TCP port, no outside abstract socket or signal
  kSystemCalls,  // seccomp allow-list
};
inline constexpr std::size_t kLayerCount = static_cast<std::size_t>(Layer::kSystemCalls) + 1;

// "user namespace" and so on; stable, for logs.
std::string_view layer_name(Layer layer);

struct LayerState {
  Layer layer = Layer::kUser;
  bool active = false;
  std::string detail;  // how the layer was built, or why it is missing
};

class SandboxReport {
 public:
  void add(Layer layer, bool active, std::string detail);
  // Adds the layers that `other` has and this report lacks.
  void merge(const SandboxReport& other);

  bool active(Layer layer) const;
  // The entry of a layer; nullptr without one.
  const LayerState* find(Layer layer) const;
  // The entries there are, in the order of Layer.
  std::vector<LayerState> layers() const;
  // Whether every layer is active.
  bool complete() const { return missing().empty(); }
  // Each missing layer with its reason, joined by "; ". Empty if none is missing.
  std::string missing() const;

 private:
  std::vector<LayerState> layers_;
};

}  // namespace sluice
