// DecoderHarness: runs a decoder, or one stage of it, on the CPU device without scheduler and
// sampling: rows in, logits out. Every slot owns fixed KV blocks. Owner: a test. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "device/arena.h"
#include "device/cpu/cpu_isa.h"
#include "device/device.h"
#include "engine/batch_inputs.h"
#include "engine/graph_cache.h"
#include "kv/kv_layout.h"
#include "model/decoder.h"

namespace sluice::test {

struct HarnessOptions {
  std::optional<DType> dtype;    // of weights (and KV, unless FP8); absent: as stored
  std::int32_t max_tokens = 64;  // per step
  std::int32_t max_slots = 4;
  std::int32_t context = 128;
  std::int32_t block_size = 4;
  GraphMode graphs = GraphMode::kEager;
  int threads = 1;
  std::optional<CpuIsa> isa;  // absent: the best of this machine
  std::int32_t first_layer = 0;
  std::optional<std::int32_t> last_layer;  // absent: all
};

struct HarnessRow {
  std::int32_t slot = 0;
  std::int32_t context_len = 0;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> logit_positions;  // within `tokens`
};

class DecoderHarness {
 public:
  // Throws std::runtime_error when the model does not load.
  DecoderHarness(const std::string& directory, const HarnessOptions& options);

  // Runs one step, from `graph` if one is given. Returns the logits of every wanted position, in
  // order; empty for a stage without.
  std::vector<std::vector<float>> run(const std::vector<HarnessRow>& rows,
                                      const Graph* graph = nullptr);

  // The hidden states after the last step, and the hidden states that the next step starts from.
  std::vector<float> hidden(std::size_t tokens) const;
  void set_hidden(const std::vector<float>& values);

  const ModelConfig& config() const { return config_; }
  Device& device() { return *device_; }
  const Arena& arena() const { return *arena_; }
  const GraphCache& graphs() const { return *graphs_; }

 private:
  HarnessOptions options_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_;
  ModelConfig config_;
  KvLayout layout_;
  std::int32_t table_width_ = 0;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<BatchInputs> inputs_;
  std::unique_ptr<GraphCache> graphs_;
  std::unique_ptr<Arena> arena_;
};

// The root mean square of what `logits` are off, over that of `expected`, which has as many.
double relative_error(const std::vector<std::vector<float>>& logits,
                      const std::vector<std::vector<float>>& expected);

// Logits of the whole prompt in one step.
std::vector<std::vector<float>> prompt_logits(DecoderHarness& harness,
                                              const std::vector<TokenId>& prompt,
                                              const std::vector<std::int32_t>& positions);

}  // namespace sluice::test
