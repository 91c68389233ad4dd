// Attention over made-up sequences, for parity and exactness tests: sequences whole, batches of
// parts of them, block placement at random, NaN in every place that must not be read.
// Threads: the test's.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "device/device.h"
#include "tests/parity/support.h"

namespace sluice::parity {

struct AttentionConfig {
  std::int32_t num_heads = 1;
  std::int32_t num_kv_heads = 1;
  std::int32_t head_dim = 8;
  std::int32_t block_size = 16;
  std::int32_t window = 0;
  DType kv = DType::kF32;
  DType out = DType::kF32;
  // Keys and values lie in the last of `layers` layers of a block, with heads or tokens outermost.
  std::int32_t layers = 1;
  bool tokens_outermost = false;
};

// Queries, keys and values of a whole sequence.
struct AttentionSequence {
  std::int32_t length = 0;
  std::vector<float> q;  // [length, H, D], representable in the KV dtype, as are
  std::vector<float> k;  // [length, G, D]
  std::vector<float> v;
};
AttentionSequence random_sequence(const AttentionConfig& config, std::int32_t length,
                                  SplitMix64& rng);

// `query` tokens of a sequence after `context` that are in the cache already.
struct AttentionRow {
  const AttentionSequence* sequence = nullptr;
  std::int32_t context = 0;
  std::int32_t query = 0;
};

// Everything on the device, ready to run with any number of the rows.
class AttentionBatch {
 public:
  AttentionBatch(Device& device, DeviceMemory& memory, const AttentionConfig& config,
                 const std::vector<AttentionRow>& rows, SplitMix64& placement);
  const AttentionParams& params() const { return params_; }
  // Plans for the first `num_rows` rows and tells the device that there are so many.
  void set_rows(std::int32_t num_rows);

 private:
  void put_params(const std::vector<float>& queries, const std::vector<std::int32_t>& slots);
  void place_blocks(const AttentionRow& row, std::int32_t slot, SplitMix64& placement);
  void fill_block(std::int64_t block, const AttentionRow& row, std::int32_t first_position);

  Device& device_;
  DeviceMemory& memory_;
  AttentionConfig config_;
  AttentionParams params_;
  std::vector<float> cache_;               // [blocks, layers, K and V, ...], see params().kv
  std::vector<std::int32_t> tables_;       // [rows, table_stride]
  std::vector<std::int32_t> free_blocks_;  // shuffled; the last one stays poisoned
  std::vector<std::int32_t> cu_seqlens_q_;
  std::vector<std::int32_t> seq_lens_;
  std::int32_t* count_ = nullptr;
  AttentionPlanLimits limits_;
  std::vector<std::byte> plan_;
};

// The outputs [tokens, H * D] of all rows.
std::vector<float> run_attention(Device& device, DeviceMemory& memory,
                                 const AttentionConfig& config,
                                 const std::vector<AttentionRow>& rows, SplitMix64& placement);

// The exact outputs, in double, and the error allowed if weights are rounded to the KV dtype before
// they are summed.
struct ExpectedAttention {
  std::vector<double> values;
  std::vector<double> rounded_weights;
};
ExpectedAttention expected_attention(const AttentionConfig& config,
                                     const std::vector<AttentionRow>& rows);

}  // namespace sluice::parity
