// FinishReason: why a sequence ended. Values: plain; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace sluice {

enum class FinishReason : std::uint8_t {
  kNone,       // still running
  kStop,       // a stop id, the end-of-sequence id or a stop string
  kLength,     // max_tokens or the context is used up
  kCancelled,  // the client disconnected or cancelled the request
  kError,      // the logits were not finite, or the masks of the request left no token
  kNoMemory,   // even alone it has no room in the KV memory that is left
  kNoAdapter,  // its adapter could not be loaded
  kLostKv,     // its KV is streamed, and could not be read or written
};
inline constexpr std::size_t kNumFinishReasons = 8;

// The name in logs: "stop", "length", "cancelled", "error", "no_memory", "no_adapter", "lost_kv";
// "" while running.
constexpr std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
    case FinishReason::kNoMemory: return "no_memory";
    case FinishReason::kNoAdapter: return "no_adapter";
    case FinishReason::kLostKv: return "lost_kv";
  }
  return "";
}

// Whether the sequence ended because something failed, so that the request gets an error.
constexpr bool is_failure(FinishReason reason) {
  return reason == FinishReason::kError || reason == FinishReason::kNoMemory ||
         reason == FinishReason::kNoAdapter || reason == FinishReason::kLostKv;
}

// The error for the client. REQUIRES: is_failure(reason).
Error failure_of(FinishReason reason);

}  // namespace sluice
