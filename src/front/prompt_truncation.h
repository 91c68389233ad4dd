// PromptTruncation: which tokens of a prompt that is too long are kept. Pure data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice {

// The side that is cut off.
enum class TruncationSide : std::uint8_t { kLeft, kRight };

struct PromptTruncation {
  std::optional<std::size_t> max_tokens;  // at least 1; absent: a prompt is never shortened
  TruncationSide side = TruncationSide::kLeft;
};

}  // namespace sluice
