// The counters of a device that computes steps, and DeviceMeter, the interface that reads them.
// All are sums over the collected steps since the start.
// Threads: the engine's thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace sluice {

// Zero if the device computes on the host's own threads.
struct DeviceTime {
  Duration busy{0};  // from a step's start to its end
  Duration idle{0};  // between two steps, the later one submitted before the earlier one ended

  bool operator==(const DeviceTime&) const = default;
};

// The work that kernels did. Padding is the useless part of it: kernels work in tiles, and a graph
// may compute all rows of its capacity.
struct ComputedWork {
  std::int64_t matmul_rows = 0;              // over all matrix products
  std::int64_t matmul_rows_padding = 0;      // rows without a token or a wanted position
  std::int64_t attention_pairs = 0;          // of a query and a key, over all heads and layers
  std::int64_t attention_pairs_padding = 0;  // pairs that no query sees

  bool operator==(const ComputedWork&) const = default;
  ComputedWork& operator+=(const ComputedWork& other) {
    matmul_rows += other.matmul_rows;
    matmul_rows_padding += other.matmul_rows_padding;
    attention_pairs += other.attention_pairs;
    attention_pairs_padding += other.attention_pairs_padding;
    return *this;
  }
  friend ComputedWork operator-(ComputedWork a, const ComputedWork& b) {
    a.matmul_rows -= b.matmul_rows;
    a.matmul_rows_padding -= b.matmul_rows_padding;
    a.attention_pairs -= b.attention_pairs;
    a.attention_pairs_padding -= b.attention_pairs_padding;
    return a;
  }
};

// Two implementations: ModelRunner, and the executors of tests.
class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;
  virtual DeviceTime device_time() const = 0;
  virtual ComputedWork computed_work() const = 0;
};

}  // namespace sluice
