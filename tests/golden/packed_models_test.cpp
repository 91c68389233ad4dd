// Whole models that other tools quantized to integers, in each form that is read: logits have the
// bits of those of a checkpoint directory with the dequantized matrices in BF16, or are near where
// products quantize their inputs. The tests pack codes by the published formats;
// tests/golden/packed has tensors that other programs packed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "backbone/backbone.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_loader.h"
#include "model/packed_checkpoint.h"
#include "tensor/half.h"
#include "tests/golden/kept_elements.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/decoder_harness.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/tiles/tile_emulator.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPackedWidth = 256;
constexpr std::int64_t kPackedFeedForward = 384;
constexpr std::int64_t kPackedVocabulary = 40;
constexpr int kPackedLayers = 2;

template <class T>
void append_number(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A safetensors file in the making.
class TensorFile {
 public:
  void add(const std::string& name, const char* dtype, const std::vector<std::int64_t>& shape,
           const std::string& bytes) {
    std::string dims;
    for (const std::int64_t dim : shape) dims += (dims.empty() ? "" : ",") + std::to_string(dim);
    header_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                           header_.empty() ? "{" : ",", name, dtype, dims, data_.size(),
                           data_.size() + bytes.size());
    data_ += bytes;
  }
  std::string bytes() const { return safetensors_bytes(header_ + "}", data_); }

 private:
  std::string header_;
  std::string data_;
};

// Codes without a sign, a scale and a zero point for each row and group.
struct Codes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t group = 0;
  int bits = 4;
  std::vector<int> codes;                 // [rows, cols]
  std::vector<float> scales;              // [rows, groups]
  std::vector<int> zeros;                 // [rows, groups]
  std::vector<std::int64_t> places = {};  // of columns among the groups, or in order
  std::int64_t group_of(std::int64_t k) const {
    return (places.empty() ? k : places[static_cast<std::size_t>(k)]) / group;
  }
  std::int64_t groups() const { return (cols + group - 1) / group; }
  int code(std::int64_t n, std::int64_t k) const {
    return codes[static_cast<std::size_t>(n * cols + k)];
  }
  float scale(std::int64_t n, std::int64_t g) const {
    return scales[static_cast<std::size_t>(n * groups() + g)];
  }
  int zero(std::int64_t n, std::int64_t g) const {
    return zeros[static_cast<std::size_t>(n * groups() + g)];
  }
  float value(std::int64_t n, std::int64_t k) const {
    return scale(n, group_of(k)) * static_cast<float>(code(n, k) - zero(n, group_of(k)));
  }
};

// A way to store matrices.
struct PackedForm {
  std::string config;  // quantization_config
  int bits = 4;
  std::int64_t group = 128;  // 0: whole rows
  bool zeros = true;         // other than half of the range
  std::function<void(TensorFile&, const std::string& module, const Codes&)> write;
  bool ordered = false;  // columns belong to groups in an order of their own
};

using CodeAt = std::function<int(std::int64_t, std::int64_t)>;

// [down, across] numbers; `along` of them lie in a word, either down or across.
std::string packed_words(std::int64_t down, std::int64_t across, int bits, bool is_down,
                         const CodeAt& at, const std::vector<int>& order = {}) {
  const std::int64_t per_word = 32 / bits;
  const std::int64_t words_down = is_down ? (down + per_word - 1) / per_word : down;
  const std::int64_t words_across = is_down ? across : (across + per_word - 1) / per_word;
  std::string bytes;
  for (std::int64_t i = 0; i < words_down; ++i) {
    for (std::int64_t j = 0; j < words_across; ++j) {
      std::uint32_t word = 0;
      for (std::int64_t place = 0; place < per_word; ++place) {
        const std::int64_t of = order.empty() ? place : order[static_cast<std::size_t>(place)];
        const std::int64_t row = is_down ? i * per_word + of : i;
        const std::int64_t col = is_down ? j : j * per_word + of;
        if (row >= down || col >= across) continue;
        word |= static_cast<std::uint32_t>(at(row, col)) << (place * bits);
      }
      append_number(bytes, word);
    }
  }
  return bytes;
}

std::string floats(std::int64_t down, std::int64_t across, bool bf16,
                   const std::function<float(std::int64_t, std::int64_t)>& at) {
  std::string bytes;
  for (std::int64_t i = 0; i < down; ++i) {
    for (std::int64_t j = 0; j < across; ++j) {
      append_number(bytes, bf16 ? float_to_bf16(at(i, j)) : float_to_f16(at(i, j)));
    }
  }
  return bytes;
}

void write_groups(TensorFile& file, const std::string& name, const Codes& c) {
  std::string groups;
  for (std::int64_t k = 0; k < c.cols; ++k) {
    append_number(groups, static_cast<std::int32_t>(c.group_of(k)));
  }
  file.add(name, "I32", {c.cols}, groups);
}

void write_gptq(TensorFile& file, const std::string& module, const Codes& c, int stored_minus) {
  const std::int64_t per_word = 32 / c.bits;
  file.add(module + ".qweight", "I32", {c.cols / per_word, c.rows},
           packed_words(c.cols, c.rows, c.bits, true,
                        [&](std::int64_t k, std::int64_t n) { return c.code(n, k); }));
  file.add(module + ".qzeros", "I32", {c.groups(), c.rows / per_word},
           packed_words(c.groups(), c.rows, c.bits, false, [&](std::int64_t g, std::int64_t n) {
             return c.zero(n, g) - stored_minus;
           }));
  file.add(module + ".scales", "F16", {c.groups(), c.rows},
           floats(c.groups(), c.rows, false,
                  [&](std::int64_t g, std::int64_t n) { return c.scale(n, g); }));
  write_groups(file, module + ".g_idx", c);
}

void write_awq(TensorFile& file, const std::string& module, const Codes& c) {
  const std::vector<int> order = {0, 2, 4, 6, 1, 3, 5, 7};
  file.add(module + ".qweight", "I32", {c.cols, c.rows / 8},
           packed_words(
               c.cols, c.rows, 4, false,
               [&](std::int64_t k, std::int64_t n) { return c.code(n, k); }, order));
  file.add(module + ".qzeros", "I32", {c.groups(), c.rows / 8},
           packed_words(
               c.groups(), c.rows, 4, false,
               [&](std::int64_t g, std::int64_t n) { return c.zero(n, g); }, order));
  file.add(module + ".scales", "F16", {c.groups(), c.rows},
           floats(c.groups(), c.rows, false,
                  [&](std::int64_t g, std::int64_t n) { return c.scale(n, g); }));
}

void write_row_scales(TensorFile& file, const std::string& module, const Codes& c) {
  file.add(module + ".weight_scale", "BF16", {c.rows, c.groups()},
           floats(c.rows, c.groups(), true,
                  [&](std::int64_t n, std::int64_t g) { return c.scale(n, g); }));
}

// `zeros`: "none", "words" or "bytes".
void write_compressed(TensorFile& file, const std::string& module, const Codes& c,
                      const std::string& zeros) {
  const std::int64_t per_word = 32 / c.bits;
  file.add(module + ".weight_packed", "I32", {c.rows, (c.cols + per_word - 1) / per_word},
           packed_words(c.rows, c.cols, c.bits, false,
                        [&](std::int64_t n, std::int64_t k) { return c.code(n, k); }));
  std::string shape;
  append_number(shape, c.rows);
  append_number(shape, c.cols);
  file.add(module + ".weight_shape", "I64", {2}, shape);
  if (!c.places.empty()) write_groups(file, module + ".weight_g_idx", c);
  write_row_scales(file, module, c);
  const auto zero = [&](std::int64_t n, std::int64_t g) { return c.zero(n, g); };
  if (zeros == "words") {
    file.add(module + ".weight_zero_point", "I32", {(c.rows + per_word - 1) / per_word, c.groups()},
             packed_words(c.rows, c.groups(), c.bits, true, zero));
  }
  if (zeros == "bytes") {
    std::string bytes;
    for (const int z : c.zeros) bytes += static_cast<char>(z - (1 << (c.bits - 1)));
    file.add(module + ".weight_zero_point", "I8", {c.rows, c.groups()}, bytes);
  }
}

void write_int8(TensorFile& file, const std::string& module, const Codes& c) {
  std::string bytes;
  for (const int code : c.codes) bytes += static_cast<char>(code - 128);
  file.add(module + ".weight", "I8", {c.rows, c.cols}, bytes);
  write_row_scales(file, module, c);
}

PackedForm gptq_form(int bits, std::int64_t group, bool zeros, int version) {
  return {fmt::format(R"({{"quant_method": "gptq", "bits": {}, "group_size": {},
                          "checkpoint_format": "gptq{}"}})",
                      bits, group == 0 ? -1 : group, version == 2 ? "_v2" : ""),
          bits, group, zeros,
          [version](TensorFile& file, const std::string& module, const Codes& codes) {
            write_gptq(file, module, codes, version == 2 ? 0 : 1);
          }};
}

PackedForm awq_form(std::int64_t group) {
  return {fmt::format(R"({{"quant_method": "awq", "bits": 4, "group_size": {},
                          "version": "gemm", "zero_point": true}})",
                      group),
          4, group, true, [](TensorFile& file, const std::string& module, const Codes& codes) {
            write_awq(file, module, codes);
          }};
}

std::string compressed_config(const std::string& format, int bits, std::int64_t group,
                              bool symmetric, const std::string& inputs) {
  return fmt::format(
      R"({{"quant_method": "compressed-tensors", "format": "{}", "ignore": ["lm_head"],
          "config_groups": {{"group_0": {{"targets": ["Linear"], "input_activations": {},
          "weights": {{"num_bits": {}, "type": "int", "strategy": "{}", "group_size": {},
          "symmetric": {}, "dynamic": false}}}}}}}})",
      format, inputs, bits, group == 0 ? "channel" : "group",
      group == 0 ? "null" : std::to_string(group), symmetric);
}

PackedForm compressed_form(int bits, std::int64_t group, const std::string& zeros) {
  return {compressed_config("pack-quantized", bits, group, zeros == "none", "null"), bits, group,
          zeros != "none",
          [zeros](TensorFile& file, const std::string& module, const Codes& codes) {
            write_compressed(file, module, codes, zeros);
          }};
}

PackedForm int8_form(std::int64_t group, const std::string& inputs) {
  return {compressed_config("int-quantized", 8, group, true, inputs), 8, group, false, write_int8};
}

// A model in a packed form, and the same model with its matrices in BF16.
class PackedModel {
 public:
  // `head`: the dtype of embedding, norms and lm_head, whose values BF16 holds exactly.
  explicit PackedModel(const PackedForm& form, const char* head = "BF16")
      : form_(form), head_(head) {
    add_float("model.embed_tokens.weight", {kPackedVocabulary, kPackedWidth}, 0.0F);
    add_float("lm_head.weight", {kPackedVocabulary, kPackedWidth}, 0.0F);
    add_float("model.norm.weight", {kPackedWidth}, 0.75F);
    for (int i = 0; i < kPackedLayers; ++i) {
      const std::string layer = fmt::format("model.layers.{}.", i);
      add_float(layer + "input_layernorm.weight", {kPackedWidth}, 0.75F);
      add_float(layer + "post_attention_layernorm.weight", {kPackedWidth}, 0.75F);
      for (const char* name : {"q_proj", "o_proj"}) {
        add_matrix(layer + "self_attn." + name, kPackedWidth, kPackedWidth);
      }
      for (const char* name : {"k_proj", "v_proj"}) {
        add_matrix(layer + "self_attn." + name, kPackedWidth / 2, kPackedWidth);
      }
      add_matrix(layer + "mlp.gate_proj", kPackedFeedForward, kPackedWidth);
      add_matrix(layer + "mlp.up_proj", kPackedFeedForward, kPackedWidth);
      add_matrix(layer + "mlp.down_proj", kPackedWidth, kPackedFeedForward);
    }
    packed_.write("model.safetensors", packed_file_.bytes());
    packed_.write("config.json",
                  config(fmt::format(R"(, "quantization_config": {})", form.config)));
    plain_.write("model.safetensors", plain_file_.bytes());
    plain_.write("config.json", config(""));
  }

  const std::string& packed() const { return packed_.path(); }
  const std::string& plain() const { return plain_.path(); }
  const TempDirectory& packed_files() const { return packed_; }
  static std::string config(const std::string& more) {
    return fmt::format(
        R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": {},
"hidden_size": {}, "num_hidden_layers": {}, "intermediate_size": {}, "max_position_embeddings": 128,
"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-5,
"rope_theta": 10000.0, "tie_word_embeddings": false{}}})",
        kPackedVocabulary, kPackedWidth, kPackedLayers, kPackedFeedForward, more);
  }

 private:
  void add_float(const std::string& name, const std::vector<std::int64_t>& shape, float middle) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(middle + static_cast<float>(rng_.below(128)) / 256.0F - 0.25F);
    }
    const auto stored = [&](bool bf16) {
      return floats(count, 1, bf16, [&](std::int64_t i, std::int64_t) {
        return values[static_cast<std::size_t>(i)];
      });
    };
    packed_file_.add(name, head_.c_str(), shape, stored(head_ == "BF16"));
    plain_file_.add(name, "BF16", shape, stored(true));
  }

  // Matrices that share an input have one order, as tools make it, except v_proj and up_proj.
  static std::vector<std::int64_t> places_of(const std::string& module, std::int64_t cols) {
    const bool other = module.ends_with("v_proj") || module.ends_with("up_proj");
    SplitMix64 rng(other ? 3 : 4);
    std::vector<std::int64_t> places(static_cast<std::size_t>(cols));
    std::iota(places.begin(), places.end(), 0);
    for (std::size_t k = places.size() - 1; k > 0; --k) std::swap(places[k], places[rng.below(k)]);
    return places;
  }

  void add_matrix(const std::string& module, std::int64_t rows, std::int64_t cols) {
    Codes c{rows, cols, form_.group == 0 ? cols : form_.group, form_.bits, {}, {}, {}};
    const std::uint64_t range = std::uint64_t{1} << form_.bits;
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      c.codes.push_back(static_cast<int>(rng_.below(range)));
    }
    for (std::int64_t i = 0; i < rows * c.groups(); ++i) {
      // F16 and BF16 hold it exactly.
      c.scales.push_back(static_cast<float>(8 + rng_.below(16)) / 2048.0F *
                         (form_.bits == 8 ? 1.0F / 16.0F : 1.0F));
      c.zeros.push_back(form_.zeros ? static_cast<int>(1 + rng_.below(range - 1))
                                    : static_cast<int>(range / 2));
    }
    if (form_.ordered) c.places = places_of(module, cols);
    form_.write(packed_file_, module, c);
    plain_file_.add(
        module + ".weight", "BF16", {rows, cols},
        floats(rows, cols, true, [&](std::int64_t n, std::int64_t k) { return c.value(n, k); }));
  }

  PackedForm form_;
  std::string head_;
  SplitMix64 rng_{11};
  TensorFile packed_file_;
  TensorFile plain_file_;
  TempDirectory packed_;
  TempDirectory plain_;
};

const std::vector<TokenId> kPackedPrompt = {3, 14, 15, 9, 2, 6, 5, 35, 8};

std::vector<std::vector<float>> packed_logits(const std::string& model,
                                              std::optional<CpuIsa> isa = {}) {
  test::HarnessOptions options;
  options.threads = 2;
  options.isa = isa;
  test::DecoderHarness harness(model, options);
  return test::prompt_logits(harness, kPackedPrompt, {0, 4, 8});
}

// On each instruction set of this machine.
void expect_equal_or_near_models(const PackedModel& model) {
  for (const CpuIsa isa : test::tested_cpu_isas()) {
    SCOPED_TRACE(cpu_isa_name(isa));
    const auto logits = packed_logits(model.packed(), isa);
    ASSERT_EQ(logits.size(), 3U);
    test::expect_elements_kept(logits, packed_logits(model.plain(), isa), 0.02);
  }
}

TEST(PackedModels, GptqHasItsElements) {
  for (const std::int64_t group : {128, 32, 64, 0}) {
    for (const bool zeros : {false, true}) {
      SCOPED_TRACE(fmt::format("groups of {}, zero points {}", group, zeros));
      expect_equal_or_near_models(PackedModel(gptq_form(4, group, zeros, 1)));
    }
  }
  expect_equal_or_near_models(PackedModel(gptq_form(4, 128, true, 2)));
  expect_equal_or_near_models(PackedModel(gptq_form(8, 128, false, 1)));
  expect_equal_or_near_models(PackedModel(gptq_form(8, 64, false, 1)));
  expect_equal_or_near_models(PackedModel(gptq_form(8, 0, true, 2)));
}

// GPTQ's desc_act, compressed-tensors' actorder.
TEST(PackedModels, ColumnsInAnotherOrderHaveTheirElements) {
  for (PackedForm form : {gptq_form(4, 128, true, 1), gptq_form(4, 32, false, 1),
                          gptq_form(8, 128, false, 2), compressed_form(4, 64, "words")}) {
    SCOPED_TRACE(form.config);
    form.ordered = true;
    expect_equal_or_near_models(PackedModel(form));
  }
}

TEST(PackedModels, AwqHasItsElements) {
  for (const std::int64_t group : {128, 64, 32}) {
    SCOPED_TRACE(group);
    expect_equal_or_near_models(PackedModel(awq_form(group)));
  }
}

TEST(PackedModels, CompressedTensorsHaveTheirElements) {
  for (const char* zeros : {"none", "words", "bytes"}) {
    for (const std::int64_t group : {128, 32, 0}) {
      SCOPED_TRACE(fmt::format("groups of {}, zero points: {}", group, zeros));
      expect_equal_or_near_models(PackedModel(compressed_form(4, group, zeros)));
    }
  }
  expect_equal_or_near_models(PackedModel(compressed_form(8, 128, "none")));
  expect_equal_or_near_models(PackedModel(compressed_form(8, 128, "words")));
  expect_equal_or_near_models(PackedModel(compressed_form(8, 0, "bytes")));
  expect_equal_or_near_models(PackedModel(int8_form(0, "null")));
  expect_equal_or_near_models(PackedModel(int8_form(64, "null")));
}

constexpr const char* kDynamicInputs =
    R"({"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true, "symmetric": true})";

// Weights and inputs in INT8: with as little loss as the 8 bits of the inputs allow. Expanded to
// F32, the elements are exact.
TEST(PackedModels, Int8WithItsInputsIsNearItsElements) {
  const PackedModel model(int8_form(0, kDynamicInputs));
  const auto logits = packed_logits(model.packed());
  const auto expected = packed_logits(model.plain());
  const double error = test::relative_error(logits, expected);
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 0.03);
  test::HarnessOptions expand;
  expand.dtype = DType::kBF16;
  test::DecoderHarness harness(model.packed(), expand);
  EXPECT_EQ(test::prompt_logits(harness, kPackedPrompt, {0, 4, 8}), expected);
}

// Checkpoints of GPTQ and AWQ have their other weights in F16. The head's inputs are then in F32:
// its products are those of the residual stream with a final norm in F32.
TEST(PackedModels, AHeadInF16TakesInputsInF32) {
  const PackedModel model(gptq_form(4, 128, true, 1), "F16");
  test::HarnessOptions options;
  test::DecoderHarness harness(model.packed(), options);
  const auto logits = test::prompt_logits(harness, kPackedPrompt, {8});
  const std::vector<float> hidden = harness.hidden(kPackedPrompt.size());
  const std::span<const float> last = std::span(hidden).last(kPackedWidth);
  double mean = 0;
  for (const float h : last) mean += static_cast<double>(h) * h / kPackedWidth;
  const auto checkpoint = Checkpoint::open(model.packed());
  ASSERT_TRUE(checkpoint);
  const auto half = [&](const char* name, std::int64_t i) {
    const auto bytes = checkpoint->data(*checkpoint->find(name));
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + static_cast<std::size_t>(2 * i), sizeof(bits));
    return static_cast<double>(f16_to_float(bits));
  };
  ASSERT_EQ(logits.front().size(), static_cast<std::size_t>(kPackedVocabulary));
  for (std::int64_t v = 0; v < kPackedVocabulary; ++v) {
    double logit = 0;
    double size = 0;
    for (std::int64_t k = 0; k < kPackedWidth; ++k) {
      const double normed =
          last[static_cast<std::size_t>(k)] / std::sqrt(mean + 1e-5) * half("model.norm.weight", k);
      const double product = normed * half("lm_head.weight", v * kPackedWidth + k);
      logit += product;
      size += std::abs(product);
    }
    // Inputs in BF16 would be off by 2^-9 each.
    EXPECT_NEAR(logits.front()[static_cast<std::size_t>(v)], logit, size * 0x1p-20) << v;
  }
}

std::string packed_load_error(const std::string& model, const EngineOptions& options = {}) {
  ThreadPool pool(1);
  auto device = make_cpu_device({&pool, 0, {}});
  if (!device) throw std::runtime_error(device.error().message);
  const SystemClock clock;
  StartupTimeline timeline(clock);
  const auto loaded = load_executor(model, options, **device, pool, timeline);
  return loaded ? "no error" : loaded.error().message;
}

TEST(PackedModels, RefusesWhatItCannotCompute) {
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_model_len = 32;
  options.kv_cache_memory = 1 << 20;
  const PackedModel packed(awq_form(128));
  const PackedModel integers(int8_form(0, kDynamicInputs));
  EXPECT_EQ(packed_load_error(packed.packed(), options), "no error");
  EXPECT_EQ(packed_load_error(integers.packed(), options), "no error");
  EngineOptions wanted = options;
  wanted.dtype = DType::kI4;
  EXPECT_THAT(packed_load_error(packed.packed(), wanted),
              HasSubstr("--dtype int4: the model's weights are stored in u4g128"));
  for (const DType dtype : {DType::kI8, DType::kF8E4M3}) {
    wanted.dtype = dtype;
    EXPECT_THAT(packed_load_error(integers.packed(), wanted),
                HasSubstr("the checkpoint's weights are in INT8 and would be quantized twice"));
  }
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  ASSERT_TRUE(device) << device.error().message;
  const auto refused = make_backbone(packed.packed(), options, **device, pool);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("which a backbone cannot hold yet"));
}

// Weights that are stored in INT8, in a backbone that processes share.
TEST(PackedModels, ABackboneOfInt8HasTheTokensOfItsCheckpoint) {
  EngineOptions options;
  options.max_num_seqs = 4;
  options.max_model_len = 64;
  options.kv_cache_memory = 4 << 20;
  const PackedModel model(int8_form(0, kDynamicInputs));
  const auto run = [](test::EngineFixture& engine) {
    for (RequestId id = 1; id <= 4; ++id) {
      Request request = test::greedy_request(id, {3, 14, static_cast<TokenId>(id)}, 12);
      request.sampling.logprobs = 2;
      engine.add(request);
    }
    return engine.run_to_end();
  };
  test::EngineFixture alone(model.packed(), options, 1);
  const test::Results expected = run(alone);
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  const auto written = make_backbone(model.packed(), options, **device, pool);
  ASSERT_TRUE(written) << written.error().message;
  const Backbone backbone = *read_only(*written);
  test::EngineFixture shared(backbone, options, 2);
  const test::Results found = run(shared);
  for (RequestId id = 1; id <= 4; ++id) {
    const auto& want = expected.at({id, 0});
    const auto& have = found.at({id, 0});
    EXPECT_EQ(have.tokens, want.tokens);
    ASSERT_EQ(have.logprobs.size(), want.logprobs.size());
    for (std::size_t i = 0; i < want.logprobs.size(); ++i) {
      EXPECT_EQ(have.logprobs[i].logprob, want.logprobs[i].logprob) << i;
    }
  }
}

// The whole engine, with more requests at once than a tile has rows.
TEST(PackedModels, TheEngineServesThem) {
  const PackedModel model(compressed_form(4, 128, "words"));
  const auto tokens = [&](const std::string& directory, std::int32_t at_once) {
    EngineOptions options;
    options.max_num_seqs = at_once;
    options.max_model_len = 64;
    options.kv_cache_memory = 4 << 20;
    test::EngineFixture engine(directory, options, 2);
    for (RequestId id = 1; id <= 8; ++id) {
      engine.add(test::greedy_request(id, {3, 14, static_cast<TokenId>(id)}, 12));
    }
    std::vector<std::vector<TokenId>> all;
    const auto outputs = engine.run_to_end();
    for (RequestId id = 1; id <= 8; ++id) all.push_back(outputs.at({id, 0}).tokens);
    return all;
  };
  EXPECT_EQ(tokens(model.packed(), 8), tokens(model.packed(), 1));
}

}  // namespace
}  // namespace sluice
