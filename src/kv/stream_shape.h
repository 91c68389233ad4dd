// StreamShape: where the KV of a streamed sequence lies, a sequence whose KV does not fit into
// memory. Numbers only, computed once at load; any thread may read it.
//
// A slice is one layer's K and V of one block of positions. All slices lie outside of memory, in
// pieces of whole blocks. In memory the sequence has blocks of the pool, cut into slices:
//
//   window 0   the slices of one layer, by block of positions; even layers
//   window 1   the same for odd layers: it is loaded while window 0 is used
//   tails      for each layer the slices of the last piece, which is not full yet
#pragma once

#include <cstdint>

#include "kv/kv_layout.h"

namespace sluice {

struct StreamShape {
  std::int32_t max_blocks = 0;        // of positions, of one sequence; 0: no sequence is streamed
  std::int32_t num_layers = 0;        // of the model
  std::int32_t piece_blocks = 0;      // blocks of positions in a piece
  std::int32_t slices_per_block = 0;  // slices that a block of the pool holds
  std::int32_t block_size = 0;        // tokens

  std::int32_t piece_tokens() const { return piece_blocks * block_size; }
  // A window of a sequence with `blocks` blocks of positions, in slices: whole pieces.
  std::int32_t window_slices(std::int32_t blocks) const {
    return (blocks + piece_blocks - 1) / piece_blocks * piece_blocks;
  }
  std::int32_t tail_slice(std::int32_t blocks, std::int32_t layer) const {
    return 2 * window_slices(blocks) + layer * piece_blocks;
  }
  // The blocks of the pool that the sequence takes.
  std::int64_t pool_blocks(std::int32_t blocks) const {
    const std::int64_t slices =
        std::int64_t{2} * window_slices(blocks) + std::int64_t{num_layers} * piece_blocks;
    return (slices + slices_per_block - 1) / slices_per_block;
  }
};

// Pieces are the fewest blocks whose slices are a multiple of `alignment` bytes; a sequence may
// have as many as `bytes` hold. max_blocks is 0 if that is no piece, or if the layout has blocks
// that are no whole number of slices.
StreamShape make_stream_shape(const KvLayout& layout, std::int64_t bytes, std::int64_t alignment);

}  // namespace sluice
