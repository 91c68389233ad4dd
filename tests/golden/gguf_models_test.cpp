// Whole models in GGUF files: logits have the bits of those of the same model in a checkpoint
// directory, whose matrices are the blocks' elements in BF16. Where products quantize the inputs of
// Q4_0, its logits are near. The loader refuses what it cannot compute.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backbone/backbone.h"
#include "base/clock.h"
#include "base/file_digests.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/digest.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_loader.h"
#include "model/model_files.h"
#include "tensor/gguf_blocks.h"
#include "tensor/half.h"
#include "tests/golden/kept_elements.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/decoder_harness.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/gguf_files.h"
#include "tests/support/tiles/tile_emulator.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kFeedForward = 512;
constexpr std::int64_t kVocabulary = 40;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kHeadDim = 64;
constexpr int kLayers = 2;

struct StoredType {
  GgufTensorType gguf;
  DType dtype;
};
constexpr StoredType kInF32{GgufTensorType::kF32, DType::kF32};
constexpr StoredType kInF16{GgufTensorType::kF16, DType::kF16};
constexpr StoredType kInBf16{GgufTensorType::kBF16, DType::kBF16};
constexpr StoredType kInQ4{GgufTensorType::kQ4_0, DType::kI4};
constexpr StoredType kInQ4_1{GgufTensorType::kQ4_1, DType::kQ4_1};
constexpr StoredType kInQ5_0{GgufTensorType::kQ5_0, DType::kQ5_0};
constexpr StoredType kInQ5_1{GgufTensorType::kQ5_1, DType::kQ5_1};
constexpr StoredType kInQ8{GgufTensorType::kQ8_0, DType::kQ8_0};
constexpr StoredType kInQ2K{GgufTensorType::kQ2_K, DType::kQ2K};
constexpr StoredType kInQ3K{GgufTensorType::kQ3_K, DType::kQ3K};
constexpr StoredType kInQ4K{GgufTensorType::kQ4_K, DType::kQ4K};
constexpr StoredType kInQ5K{GgufTensorType::kQ5_K, DType::kQ5K};
constexpr StoredType kInQ6K{GgufTensorType::kQ6_K, DType::kQ6K};
constexpr StoredType kInIq4Nl{GgufTensorType::kIQ4_NL, DType::kIq4Nl};
constexpr StoredType kInIq4Xs{GgufTensorType::kIQ4_XS, DType::kIq4Xs};

void append_float(std::string& bytes, DType dtype, float value) {
  if (dtype == DType::kF32) {
    bytes += gguf_number(value);
  } else {
    bytes += gguf_number(dtype == DType::kF16 ? float_to_f16(value) : float_to_bf16(value));
  }
}

// Random codes; factors of about a thousandth, so that sums stay small.
std::string random_blocks(SplitMix64& rng, DType dtype, std::int64_t elements) {
  const ElementBlock block = block_of(dtype);
  std::string bytes;
  for (std::int64_t i = 0; i < elements / block.elements; ++i) {
    std::string one;
    for (std::int64_t k = 0; k < block.bytes; ++k) one += static_cast<char>(rng.below(256));
    const auto factor = [&](std::size_t place, float value) {
      one.replace(place, 2, gguf_number(float_to_f16(value)));
    };
    if (dtype == DType::kI4) factor(0, 0.02F);
    if (dtype == DType::kQ8_0) factor(0, 0.001F);
    if (dtype == DType::kQ4_1) factor(0, 0.02F);
    if (dtype == DType::kQ4_1) factor(2, -0.16F);
    if (dtype == DType::kQ5_0 || dtype == DType::kQ5_1) factor(0, 0.01F);
    if (dtype == DType::kQ5_1) factor(2, -0.16F);
    if (dtype == DType::kQ2K) factor(80, 0.01F);
    if (dtype == DType::kQ2K) factor(82, 0.015F);
    if (dtype == DType::kQ3K) factor(108, 0.002F);
    if (dtype == DType::kQ4K) factor(0, 0.0005F);
    if (dtype == DType::kQ5K) factor(0, 0.00025F);
    if (dtype == DType::kQ4K || dtype == DType::kQ5K) factor(2, 0.004F);
    if (dtype == DType::kIq4Nl) factor(0, 0.001F);
    if (dtype == DType::kIq4Xs) factor(0, 0.00005F);
    if (dtype == DType::kQ6K) factor(208, 0.00004F);
    bytes += one;
  }
  return bytes;
}

// One model in both forms. Files of "llama" hold rows of queries and keys in pairs.
class TwoForms {
 public:
  explicit TwoForms(std::string architecture) : architecture_(std::move(architecture)) {
    const auto key = [&](const char* name) { return architecture_ + "." + name; };
    gguf_.text("general.architecture", architecture_)
        .u32(key("context_length"), 128)
        .u32(key("embedding_length"), kWidth)
        .u32(key("block_count"), kLayers)
        .u32(key("feed_forward_length"), kFeedForward)
        .u32(key("attention.head_count"), kHeads)
        .u32(key("attention.head_count_kv"), kKvHeads)
        .f32(key("attention.layer_norm_rms_epsilon"), 1e-5F)
        .f32(key("rope.freq_base"), 10000.0F);
  }

  void add_vector(const std::string& gguf_name, const std::string& name, std::int64_t size) {
    std::string bytes;
    for (std::int64_t i = 0; i < size; ++i) {
      append_float(bytes, DType::kF32, 0.5F + static_cast<float>(rng_.below(1000)) / 1000.0F);
    }
    gguf_.tensor(gguf_name, {static_cast<std::uint64_t>(size)}, GgufTensorType::kF32, bytes);
    add_to_checkpoint(name, "F32", fmt::format("[{}]", size), bytes);
  }

  void add_matrix(const std::string& gguf_name, const std::string& name, std::int64_t rows,
                  std::int64_t cols, StoredType type, bool paired = false) {
    std::string stored;
    if (is_blocks(type.dtype)) stored = random_blocks(rng_, type.dtype, rows * cols);
    for (std::int64_t i = 0; !is_blocks(type.dtype) && i < rows * cols; ++i) {
      append_float(stored, type.dtype, (static_cast<float>(rng_.below(2001)) - 1000.0F) / 8000.0F);
    }
    const std::string in_file =
        paired && architecture_ == "llama" ? pair_rows(stored, rows) : stored;
    gguf_.tensor(gguf_name, {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)},
                 type.gguf, in_file);
    const std::string shape = fmt::format("[{},{}]", rows, cols);
    if (!is_blocks(type.dtype)) {
      add_to_checkpoint(name, stored_name(type.dtype), shape, stored);
      return;
    }
    std::string widened;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      append_float(widened, DType::kBF16, block_element(type.dtype, stored.data(), i));
    }
    add_to_checkpoint(name, "BF16", shape, widened);
  }

  // `value` and `down`: types of these matrices, `others` of all others of the layers.
  void add_layers(StoredType others, StoredType value, StoredType down) {
    for (int i = 0; i < kLayers; ++i) {
      const std::string from = fmt::format("blk.{}.", i);
      const std::string to = fmt::format("model.layers.{}.", i);
      const std::int64_t kv = kKvHeads * kHeadDim;
      add_vector(from + "attn_norm.weight", to + "input_layernorm.weight", kWidth);
      add_vector(from + "ffn_norm.weight", to + "post_attention_layernorm.weight", kWidth);
      add_matrix(from + "attn_q.weight", to + "self_attn.q_proj.weight", kHeads * kHeadDim, kWidth,
                 others, true);
      add_matrix(from + "attn_k.weight", to + "self_attn.k_proj.weight", kv, kWidth, others, true);
      add_matrix(from + "attn_v.weight", to + "self_attn.v_proj.weight", kv, kWidth, value);
      add_matrix(from + "attn_output.weight", to + "self_attn.o_proj.weight", kWidth,
                 kHeads * kHeadDim, others);
      add_matrix(from + "ffn_gate.weight", to + "mlp.gate_proj.weight", kFeedForward, kWidth,
                 others);
      add_matrix(from + "ffn_up.weight", to + "mlp.up_proj.weight", kFeedForward, kWidth, others);
      add_matrix(from + "ffn_down.weight", to + "mlp.down_proj.weight", kWidth, kFeedForward, down);
      if (architecture_ != "qwen3") continue;
      add_vector(from + "attn_q_norm.weight", to + "self_attn.q_norm.weight", kHeadDim);
      add_vector(from + "attn_k_norm.weight", to + "self_attn.k_norm.weight", kHeadDim);
    }
  }

  void add_model(StoredType embedding, StoredType others, StoredType value, StoredType head) {
    add_matrix("token_embd.weight", "model.embed_tokens.weight", kVocabulary, kWidth, embedding);
    add_layers(others, value, value);
    add_vector("output_norm.weight", "model.norm.weight", kWidth);
    add_matrix("output.weight", "lm_head.weight", kVocabulary, kWidth, head);
  }

  std::string write() const {
    directory_.write("m.gguf", gguf_.bytes());
    directory_.write("model.safetensors", safetensors_bytes(header_ + "}", data_));
    directory_.write("config.json",
                     fmt::format(R"({{"architectures": ["{}"], "model_type": "{}", "vocab_size": {},
"hidden_size": {}, "num_hidden_layers": {}, "intermediate_size": {},
"max_position_embeddings": 128, "num_attention_heads": {}, "num_key_value_heads": {},
"head_dim": {}, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}})",
                                 architecture_ == "llama" ? "LlamaForCausalLM" : "Qwen3ForCausalLM",
                                 architecture_, kVocabulary, kWidth, kLayers, kFeedForward, kHeads,
                                 kKvHeads, kHeadDim));
    return directory_.file("m.gguf");
  }
  const std::string& directory() const { return directory_.path(); }

 private:
  static const char* stored_name(DType dtype) {
    if (dtype == DType::kF32) return "F32";
    return dtype == DType::kF16 ? "F16" : "BF16";
  }

  // As converters do it: a head's rows [2, D / 2] are stored as [D / 2, 2].
  static std::string pair_rows(const std::string& stored, std::int64_t rows) {
    const std::size_t bytes = stored.size() / static_cast<std::size_t>(rows);
    std::string paired;
    for (std::int64_t head = 0; head < rows / kHeadDim; ++head) {
      for (std::int64_t i = 0; i < kHeadDim / 2; ++i) {
        for (const std::int64_t half : {0, 1}) {
          const std::int64_t row = head * kHeadDim + half * kHeadDim / 2 + i;
          paired += stored.substr(static_cast<std::size_t>(row) * bytes, bytes);
        }
      }
    }
    return paired;
  }

  void add_to_checkpoint(const std::string& name, const char* dtype, const std::string& shape,
                         const std::string& bytes) {
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                           data_.empty() ? "{" : ",", name, dtype, shape, data_.size(),
                           data_.size() + bytes.size());
    data_ += bytes;
  }

  std::string architecture_;
  SplitMix64 rng_{7};
  GgufBuilder gguf_;
  std::string header_;
  std::string data_;
  TempDirectory directory_;
};

std::vector<std::vector<float>> gguf_logits(const std::string& model,
                                            std::optional<CpuIsa> isa = {}) {
  test::HarnessOptions options;
  options.isa = isa;
  test::DecoderHarness harness(model, options);
  return test::prompt_logits(harness, {3, 14, 15, 9, 2, 6, 5, 35, 8}, {0, 4, 8});
}

void expect_equal_forms(const TwoForms& forms) {
  const std::string gguf = forms.write();
  const auto logits = gguf_logits(gguf);
  ASSERT_EQ(logits.size(), 3U);
  EXPECT_NE(logits[0], logits[1]);
  EXPECT_EQ(logits, gguf_logits(forms.directory()));
}

TEST(GgufModels, FloatsHaveTheBitsOfACheckpoint) {
  for (const StoredType type : {kInF32, kInF16, kInBf16}) {
    SCOPED_TRACE(dtype_name(type.dtype));
    TwoForms forms("llama");
    forms.add_model(type, type, type, type);
    expect_equal_forms(forms);
  }
}

// On each instruction set of this machine.
void expect_equal_or_near_forms(const TwoForms& forms) {
  const std::string gguf = forms.write();
  for (const CpuIsa isa : test::tested_cpu_isas()) {
    SCOPED_TRACE(cpu_isa_name(isa));
    test::expect_elements_kept(gguf_logits(gguf, isa), gguf_logits(forms.directory(), isa), 0.04);
  }
}

TEST(GgufModels, BlocksHaveTheirElements) {
  for (const StoredType type : {kInQ4, kInQ4_1, kInQ5_0, kInQ5_1, kInQ8, kInQ2K, kInQ3K, kInQ4K,
                                kInQ5K, kInQ6K, kInIq4Nl, kInIq4Xs}) {
    SCOPED_TRACE(dtype_name(type.dtype));
    TwoForms forms("llama");
    forms.add_model(type, type, kInQ6K, kInQ6K);
    expect_equal_or_near_forms(forms);
  }
}

TEST(GgufModels, RowsOfQwenAreInTheOrderOfTheCheckpoint) {
  TwoForms forms("qwen3");
  forms.add_model(kInQ8, kInQ4K, kInQ6K, kInBf16);
  expect_equal_or_near_forms(forms);
}

std::string gguf_load_error(const std::string& model, const EngineOptions& options = {}) {
  ThreadPool pool(1);
  auto device = make_cpu_device({&pool, 0, {}});
  if (!device) throw std::runtime_error(device.error().message);
  const SystemClock clock;
  StartupTimeline timeline(clock);
  const auto loaded = load_executor(model, options, **device, pool, timeline);
  return loaded ? "no error" : loaded.error().message;
}

TEST(GgufModels, RefusesWhatItCannotCompute) {
  TwoForms mixed("llama");
  mixed.add_model(kInQ8, kInQ8, kInF16, kInQ8);
  EXPECT_THAT(gguf_load_error(mixed.write()),
              HasSubstr("down_proj.weight\" is f16 beside matrices in q8_0"));

  TwoForms blocks("llama");
  blocks.add_model(kInQ8, kInQ8, kInQ8, kInQ8);
  EngineOptions options;
  options.dtype = DType::kI8;
  EXPECT_THAT(gguf_load_error(blocks.write(), options),
              HasSubstr("--dtype int8: the model's weights are stored in q8_0"));

  TwoForms unknown("llama");
  unknown.add_model(kInQ8, {GgufTensorType::kIQ3_XXS, DType::kBF16}, kInQ8, kInQ8);
  EXPECT_THAT(gguf_load_error(unknown.write()), HasSubstr("IQ3_XXS"));
}

TEST(GgufModels, ABackboneHoldsFloatsAndRefusesBlocks) {
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  ASSERT_TRUE(device) << device.error().message;
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_model_len = 32;
  options.kv_cache_memory = 1 << 20;
  TwoForms floats("llama");
  floats.add_model(kInF16, kInF16, kInF16, kInF16);
  const std::string model = floats.write();
  const auto written = make_backbone(model, options, **device, pool);
  ASSERT_TRUE(written) << written.error().message;
  const auto backbone = read_only(*written);
  ASSERT_TRUE(backbone) << backbone.error().message;
  const auto tokens = [](test::EngineFixture&& engine) {
    engine.add(test::greedy_request(1, {3, 14, 15, 9}, 8));
    return engine.run_to_end().at({1, 0}).tokens;
  };
  EXPECT_EQ(tokens(test::EngineFixture(*backbone, options, 1)),
            tokens(test::EngineFixture(model, options, 1)));

  TwoForms blocks("llama");
  blocks.add_model(kInQ8, kInQ8, kInQ8, kInQ8);
  const auto refused = make_backbone(blocks.write(), options, **device, pool);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("which a backbone cannot hold yet"));
}

// Two files that differ in what the header says are two models, and so are two that differ in
// their weights. The rows in memory are not hashed.
TEST(GgufModels, DigestsNameTheModel) {
  TwoForms forms("llama");
  forms.add_model(kInQ8, kInQ8, kInQ8, kInQ8);
  const auto checkpoint = open_checkpoint(forms.write());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->files().size(), 2U);
  EXPECT_TRUE(checkpoint->files()[1].made());
  FileDigests files;
  const auto weights = weights_digest(*checkpoint, files);
  ASSERT_TRUE(weights) << weights.error().message;
  const auto config = config_digest(checkpoint->directory(), files);
  ASSERT_TRUE(config) << config.error().message;

  TwoForms other("qwen3");
  other.add_model(kInQ8, kInQ8, kInQ8, kInQ8);
  const auto second = open_checkpoint(other.write());
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->files().size(), 1U);
  EXPECT_NE(*weights_digest(*second, files), *weights);
  EXPECT_NE(*config_digest(second->directory(), files), *config);
}

}  // namespace
}  // namespace sluice
