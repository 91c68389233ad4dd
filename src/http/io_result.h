// IoResult: what a call that never waits did with bytes. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::http {

enum class IoState : std::uint8_t { kDone, kWouldBlock, kClosed };
struct IoResult {
  IoState state = IoState::kDone;
  std::size_t bytes = 0;  // > 0 when kDone
};

}  // namespace sluice::http
