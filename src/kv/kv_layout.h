// KvLayout: where every key and value is stored in the KV region. It holds numbers only; the memory
// belongs to the engine's arena. Pure data, computed once at load; any thread may read it.
//
//   block b of the region:  b * block_bytes
//     layer i of a group:     + i * layer_bytes           (a block belongs to one group at a time)
//       K, then V:              each [kv_head][token][head_dim]
//
// No stride or offset depends on the number of blocks, so the region's size can be chosen at load
// and can change later. A block is contiguous, so it is copied, paged out or hashed as one piece.
//
// Groups: layers with the same kind of attention (full, or sliding with the same window) share a
// block table, because they free blocks at the same time. All groups take blocks from one pool of
// blocks of equal size, the size that the group with the most layers needs. A block of a group with
// fewer layers is partly unused. `max_layers_per_group` splits large groups, which wastes less
// memory but needs more tables.
//
// Tensor parallelism shards by KV head: `num_kv_heads` is the rank's share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace sluice {

// Layers that share one block table.
struct KvGroup {
  std::int32_t window = 0;           // positions that a query sees, its own included; 0 = all
  std::vector<std::int32_t> layers;  // indices in the model, ascending
};

struct KvLayoutOptions {
  std::int32_t block_size = 16;   // tokens
  std::int32_t num_kv_heads = 0;  // of this rank
  std::int32_t head_dim = 0;
  std::int32_t element_bytes = 0;           // of the KV dtype
  std::vector<std::int32_t> layer_windows;  // per layer; 0 = full attention
  std::int32_t max_layers_per_group = 0;    // 0 = do not split
};

// A layer's view within any block: byte offsets from the block's start.
struct KvLayerPlace {
  std::int32_t group = 0;
  std::int64_t k_offset = 0;  // bytes
  std::int64_t v_offset = 0;  // bytes
};

struct KvLayout {
  std::int32_t block_size = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t element_bytes = 0;
  std::vector<KvGroup> groups;
  std::vector<KvLayerPlace> layers;  // by layer index

  std::int64_t token_stride = 0;  // elements between tokens of a head
  std::int64_t head_stride = 0;   // elements between heads
  std::int64_t block_stride = 0;  // elements between blocks
  std::int64_t layer_bytes = 0;   // K and V of one layer of a block
  std::int64_t block_bytes = 0;   // a multiple of 64

  // Whole blocks that fit in `bytes`, the null block included.
  std::int64_t blocks_for_bytes(std::int64_t bytes) const { return bytes / block_bytes; }
};

// kInvalidArgument naming the field when a number is out of range.
Result<KvLayout> make_kv_layout(const KvLayoutOptions& options);

// Groups layers with equal windows, in order of first appearance. Groups of more than `max_layers`
// (unless 0) are split evenly.
std::vector<KvGroup> group_layers(std::span<const std::int32_t> layer_windows,
                                  std::int32_t max_layers);

}  // namespace sluice
