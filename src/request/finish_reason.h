// FinishReason: why a sequence ended. Values: plain; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class FinishReason : std::uint8_t {
  kNone,       // still running
  kStop,       // a stop id, the end-of-sequence id or a stop string
  kLength,     // max_tokens or the context is used up
  kCancelled,  // the client disconnected or cancelled the request
  kError,      // the engine failed or the logits were not finite
};

// The name in JSON: "stop", "length", "cancelled", "error"; "" while running.
constexpr std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "";
}

}  // namespace sluice
