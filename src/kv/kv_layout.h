// KvLayout: where every key and value lies in the KV region. Numbers only; the memory belongs to
// the engine's arena. Pure data, computed once at load; any thread may read it.
//
//   block b of the region:  b * block_bytes
//     layer i of a group:     + i * layer_bytes           (a block belongs to one group at a time)
//       K, then V:              each [kv_head][token][head_dim]
//
// The number of blocks enters no stride and no offset, so the region can grow, shrink and be
// chosen at load. A block is contiguous: copying, paging out or hashing one is one piece.
//
// Groups: layers of like attention (full, or sliding with the same window) have a block table of
// their own, since they free blocks differently. All groups draw from one pool of block ids of
// equal size, the size of the group with the most layers; a block of a group with fewer layers
// leaves the rest unused. `max_layers_per_group` splits large groups to waste less at the price
// of more tables.
//
// Tensor parallelism shards by KV head: give the rank's share as `num_kv_heads`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace sluice {

// Layers that share one block table.
struct KvGroup {
  std::int32_t window = 0;           // last positions a query sees, itself included; 0 = all
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
  // Memory that one more token takes in a long full-attention context: all groups, waste included.
  double bytes_per_token() const;
};

// kInvalidArgument naming the field when a number is out of range.
Result<KvLayout> make_kv_layout(const KvLayoutOptions& options);

// Layers with equal windows together, in order of first appearance; groups of more than
// `max_layers` (when not 0) are split evenly.
std::vector<KvGroup> group_layers(std::span<const std::int32_t> layer_windows,
                                  std::int32_t max_layers);

}  // namespace sluice
