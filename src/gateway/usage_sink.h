// UsageSink: where the gateway's driver reports what functions use.
// Owner: the command. Threads: the event loop's.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace sluice {

// The processes of one function.
struct FunctionSample {
  bool live = false;           // it has a process, or one that starts
  std::int64_t own_bytes = 0;  // memory that it shares with no other function
  Duration turn_time{0};       // since the last sample
};

class UsageSink {
 public:
  virtual ~UsageSink() = default;

  // 0: its weights are not in memory.
  virtual void set_backbone_bytes(std::int32_t backbone, std::int64_t bytes) = 0;
  virtual void count_request(std::int32_t function, std::int64_t prompt_tokens) = 0;
  virtual void count_output(std::int32_t function, std::int64_t tokens) = 0;
  // Whether a request runs or waits.
  virtual void set_active(std::int32_t function, bool active) = 0;
  virtual void sample(std::int32_t function, const FunctionSample& sample) = 0;
};

}  // namespace sluice
