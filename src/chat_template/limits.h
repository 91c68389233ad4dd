// RenderLimits: the limits of one rendering. A template is untrusted code from a checkpoint. A
// rendering that exceeds a limit ends with an error that names the limit, the template and the
// line.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

struct RenderLimits {
  std::uint64_t max_steps = 20'000'000;                  // evaluated nodes and scanned text, in all
  std::size_t max_output_bytes = std::size_t{64} << 20;  // of the rendered text
  std::size_t max_value_bytes = std::size_t{256} << 20;  // text and containers made, in all
  int max_depth = 500;                                   // nested calls and expressions
};

}  // namespace sluice
