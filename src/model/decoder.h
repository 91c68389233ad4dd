// Decoder: the forward pass of all model families, driven by per-layer configuration, over layers
// [first, last) of a model. It reads persistent inputs (addresses that never change), works in
// named buffers of the workspace, and writes logits to one of them. Ops read everything that
// differs from step to step from device memory, so a captured forward pass replays with any batch
// up to its capacity.
//
// Stages of a pipeline: the stage with layer 0 embeds tokens; the last stage applies the final norm
// and projects to logits. Hidden states pass through hidden(): the caller writes it before a stage
// with first > 0 and reads it after a stage with last < num_layers.
//
// Owner: the model runner. Threads: the engine's thread. Allocates nothing in forward().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "device/arena.h"
#include "device/device.h"
#include "device/ops.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace sluice {

// Forward passes with different ops: kAdapters adds the products of LoRA adapters to each matmul of
// a layer. Tokens without an adapter get the same bits in both.
enum class ForwardVariant : std::uint8_t { kPlain, kAdapters };
inline constexpr std::size_t kNumForwardVariants = 2;

// The linear modules of a layer that adapters may change: q, k, v, o, gate, up, down.
inline constexpr std::int32_t kLoraModulesPerLayer = 7;

// The maximum of tokens, sequences and logit positions of a step or a captured graph.
struct StepCapacity {
  std::int32_t tokens = 0;
  std::int32_t seqs = 0;
  std::int32_t logits = 0;
};

// Inputs of one KV group: layers that share block tables.
struct DecoderGroupInputs {
  const std::int64_t* slot_mapping = nullptr;  // [T]
  const std::int32_t* block_tables = nullptr;  // [slots, table_stride]
  std::int64_t table_stride = 0;
  void* attention_plan = nullptr;
};

// The adapters in device memory, and the step's tokens by adapter (device/lora_batch.h).
struct DecoderAdapters {
  const void* base = nullptr;          // of the offsets in entries
  const LoraEntry* entries = nullptr;  // [slots, layers of the model, kLoraModulesPerLayer]
  const std::int32_t* tokens = nullptr;
  const LoraSegment* segments = nullptr;
  const std::int32_t* num_segments = nullptr;
};

// The KV of a step with one row that is not in its blocks: layer i has window i % 2. Either window
// is a block table with its own slots to write; the row's slot does not matter.
struct DecoderStreamedKv {
  struct Window {
    const std::int64_t* slot_mapping = nullptr;  // [T]
    const std::int32_t* block_table = nullptr;
  };
  KvLayerView view;  // of all layers
  std::array<Window, 2> windows;
};

struct DecoderLayerKv {
  KvLayerView view;
  std::int32_t group = 0;
};

// Device addresses, fixed for the life of the decoder.
struct DecoderInputs {
  const std::int32_t* token_ids = nullptr;      // [T]
  const std::int32_t* last_tokens = nullptr;    // [slots]: see EmbedParams
  const std::int32_t* positions = nullptr;      // [T]
  const std::int32_t* cu_seqlens_q = nullptr;   // [S + 1]
  const std::int32_t* seq_lens = nullptr;       // [S]
  const std::int32_t* row_slots = nullptr;      // [S]
  const std::int32_t* logit_indices = nullptr;  // [L]
  const std::int32_t* num_tokens = nullptr;
  const std::int32_t* num_seqs = nullptr;
  const std::int32_t* num_logits = nullptr;
  std::vector<DecoderGroupInputs> groups;
  std::vector<DecoderLayerKv> layers;  // last - first, index 0 = first
  DecoderAdapters adapters;            // if Options::adapter_slots is not 0
};

class Decoder {
 public:
  struct Options {
    std::int32_t first_layer = 0;
    std::int32_t last_layer = 0;     // exclusive
    StepCapacity capacity;           // the largest step
    std::int32_t max_positions = 0;  // context: rows of the rotary tables
    std::string model_id = "model";  // prefix of buffer names
    std::int32_t adapter_slots = 0;  // 0: only ForwardVariant::kPlain
    std::int32_t max_lora_rank = 0;  // of a module
    bool has_rope_tables = true;     // of its own; false: DecoderWeights::rope_tables
  };

  // Adds the decoder's buffers to `arena`. `config` must outlive the decoder.
  Decoder(const ModelConfig& config, const Options& options, WeightDTypes weights,
          const DeviceTraits& traits, ArenaPlan& arena);

  // Binds the buffers once the arena's inputs and workspace are backed, and writes the rotary
  // tables. REQUIRES: views of `weights` and `inputs` stay valid.
  // `rope`: rope_tables() of an earlier start; empty = computed here.
  Status bind(const Arena& arena, Device& device, DecoderWeights weights, DecoderInputs inputs,
              std::span<const float> rope = {});
  // The rotary tables of all positions, by ModelConfig::ropes: a function of the configuration.
  std::vector<float> rope_tables() const;
  std::size_t rope_floats() const;

  // Runs the batch that the inputs describe. During a capture the device records the ops instead.
  // REQUIRES: bound; capacity is at most the largest step.
  void forward(Ops& ops, const StepCapacity& capacity,
               ForwardVariant variant = ForwardVariant::kPlain) const;
  // The same with a function that is called before each stage of WeightsLayout::stages().
  using BeforeStage = FunctionRef<void(std::size_t stage)>;
  // `streamed`: where the KV is instead of in the inputs' blocks.
  void forward(Ops& ops, const StepCapacity& capacity, ForwardVariant variant, BeforeStage before,
               const DecoderStreamedKv* streamed = nullptr) const;

  // The dtype of the inputs of the layers' matmuls, which is also that of adapters.
  DType input_dtype() const { return input_; }

  // [L, V] F32: row i belongs to logit_indices[i]. Last stage only.
  const TensorView& logits() const { return buffers_.logits; }
  // Behind the final norm, in the dtype of the head's inputs: [T, hidden] of all tokens, and [L,
  // hidden] of the logit positions. Last stage only.
  const TensorView& normed() const { return buffers_.final_normed; }
  const TensorView& gathered() const { return buffers_.gathered; }
  // [T, hidden]: the residual stream, between stages.
  const TensorView& hidden() const { return buffers_.residual; }

 private:
  struct Buffers {
    TensorView residual;           // [T, hidden]
    TensorView normed;             // [T, hidden]: input of a matmul
    TensorView final_normed;       // the same memory, behind the final norm
    TensorView qkv;                // [T, (H + 2 G) D], a product: see product_stride()
    TensorView attention;          // [T, H D]
    TensorView projected;          // [T, hidden], a product: of o and down, added by the next norm
    TensorView gate_up;            // [T, 2 F], a product
    TensorView activated;          // [T, F]
    TensorView gathered;           // [L, hidden]
    TensorView logits;             // [L, V]
    float* lora_hidden = nullptr;  // LoraHidden::data of any matmul
  };
  struct Widths {
    std::int32_t qkv = 0;
    std::int32_t attention = 0;
    std::int32_t intermediate = 0;
  };

  // A forward pass under way.
  struct Pass {
    Ops& ops;
    StepCapacity capacity;
    ForwardVariant variant = ForwardVariant::kPlain;
    const DecoderStreamedKv* streamed = nullptr;
  };
  // The KV of a layer in a pass.
  struct LayerKv {
    KvLayerView view;
    const std::int64_t* slot_mapping = nullptr;
    const std::int32_t* block_tables = nullptr;
    std::int64_t table_stride = 0;
  };

  std::string buffer_name(std::string_view name) const;
  Widths max_widths() const;
  std::size_t lora_hidden_bytes() const;
  // Elements from row to row of a product with so many columns.
  std::int64_t product_stride(std::int64_t cols) const;
  // A product of the first `cols` columns, in a buffer that wider ones share.
  TensorView product_in(const TensorView& buffer, std::int32_t rows, std::int64_t cols) const {
    return matrix_view(buffer.data, buffer.dtype, rows, cols, product_stride(cols));
  }
  void plan_buffers(ArenaPlan& arena);
  std::size_t rope_floats(const RopeConfig& rope) const;
  Status write_rope_tables(const Arena& arena, Device& device, std::span<const float> tables);

  void norm(const Pass& pass, const TensorView& add, const TensorView& weight,
            const TensorView& normed) const;
  LayerKv kv_of(const Pass& pass, std::int32_t layer) const;
  void attention(const Pass& pass, std::int32_t layer) const;
  void mlp(const Pass& pass, std::int32_t layer) const;
  void layer_matmul(const Pass& pass, std::int32_t layer, std::int32_t first_module,
                    const MatmulParams& product) const;
  void project_logits(const Pass& pass) const;

  const ModelConfig& config_;
  Options options_;
  DType wide_;                // dtype of the residual stream and of matmul outputs
  std::int64_t row_spacing_;  // DeviceTraits::row_spacing
  DType input_;               // dtype of matmul inputs
  DType head_input_;          // of lm_head's matmul
  Buffers buffers_;
  DecoderWeights weights_;
  DecoderInputs inputs_;
  std::vector<const float*> rope_tables_;  // by ModelConfig::ropes
};

}  // namespace sluice
