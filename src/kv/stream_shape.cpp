#include "kv/stream_shape.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice {

StreamShape make_stream_shape(const KvLayout& layout, std::int64_t bytes, std::int64_t alignment) {
  StreamShape shape;
  shape.block_size = layout.block_size;
  shape.num_layers = static_cast<std::int32_t>(layout.layers.size());
  shape.piece_blocks =
      static_cast<std::int32_t>(alignment / std::gcd(alignment, layout.layer_bytes));
  shape.slices_per_block = static_cast<std::int32_t>(layout.block_bytes / layout.layer_bytes);
  if (layout.block_bytes % layout.layer_bytes != 0) return shape;
  const std::int64_t piece = layout.layer_bytes * shape.piece_blocks * shape.num_layers;
  const std::int64_t most = std::numeric_limits<std::int32_t>::max() / (4 * shape.piece_blocks);
  const std::int64_t pieces = std::clamp<std::int64_t>(bytes / piece, 0, most);
  shape.max_blocks = static_cast<std::int32_t>(pieces) * shape.piece_blocks;
  return shape;
}

}  // namespace sluice
