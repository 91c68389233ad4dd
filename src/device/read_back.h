// read_back: hands device memory to the host, in order, piece by piece. Copies of the next piece
// run while the caller looks at one. Function; the engine's thread. Uses the compute queue's marks
// 0 and 1; no other code may use them meanwhile.
#pragma once

#include <cstddef>
#include <span>

#include "base/function_ref.h"
#include "base/result.h"
#include "device/device.h"

namespace sluice {

inline constexpr std::size_t kReadBackBytes = std::size_t{16} << 20;

// Calls visit(piece) for all of [from, from + bytes), after what was submitted to the compute queue
// has run. Pieces have `piece_bytes`, the last one perhaps fewer. A piece is valid during the call.
Status read_back(Device& device, const std::byte* from, std::size_t bytes,
                 FunctionRef<void(std::span<const std::byte> piece)> visit,
                 std::size_t piece_bytes = kReadBackBytes);

}  // namespace sluice
