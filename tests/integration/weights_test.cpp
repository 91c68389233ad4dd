// Weights in the arena: which are mapped, which are copied, and that every view shows the bytes of
// the checkpoint.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "base/json.h"
#include "device/cpu/cpu_device.h"
#include "model/dummy_weights.h"
#include "tensor/float8.h"
#include "tensor/half.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

// A loaded checkpoint and the objects that it needs.
struct Loaded {
  explicit Loaded(const std::string& directory, std::optional<DType> dtype = {},
                  std::int32_t first = 0, std::optional<std::int32_t> last = {})
      : pool(2),
        device(*make_cpu_device({&pool, 0, {}})),
        config(*load_model_config(directory)),
        checkpoint(*Checkpoint::open(directory)),
        sources(*resolve_weights(config, checkpoint, first, last.value_or(config.num_layers))) {
    ArenaPlan plan;
    const WeightsLayout layout =
        WeightsLayout::plan(checkpoint, sources, dtype, device->traits(), "m", plan);
    mapped_bytes = layout.mapped_bytes();
    copied_bytes = layout.copied_bytes();
    plan.finish(device->traits().granularity);
    arena = std::make_unique<Arena>(*Arena::create(*device, std::move(plan)));
    weights = *layout.load(*arena, *device, pool);
  }

  ThreadPool pool;
  std::unique_ptr<Device> device;
  ModelConfig config;
  Checkpoint checkpoint;
  ModelWeightsPlan sources;
  std::unique_ptr<Arena> arena;
  DecoderWeights weights;
  std::uint64_t mapped_bytes = 0;
  std::uint64_t copied_bytes = 0;
};

float element(const TensorView& view, std::int64_t index) {
  switch (view.dtype) {
    case DType::kBF16: return bf16_to_float(view.as<std::uint16_t>()[index]);
    case DType::kF16: return f16_to_float(view.as<std::uint16_t>()[index]);
    default: return view.as<float>()[index];
  }
}

class WeightsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = read_golden_case("tests/golden/models", GetParam());
    write_golden_checkpoint(golden_, directory_.path());
  }

  // The recipe's values, which the file was written from.
  std::vector<float> recipe(const std::string& name) const {
    for (const GoldenTensor& tensor : golden_.tensors) {
      if (tensor.name == name) return golden_values(tensor, golden_.seed);
    }
    ADD_FAILURE() << name;
    return {};
  }

  void expect_equal(const TensorView& view, const std::string& name) const {
    const std::vector<float> values = recipe(name);
    ASSERT_EQ(view.elements(), static_cast<std::int64_t>(values.size())) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float stored = values[i];
      if (golden_.dtype == "bf16") stored = bf16_to_float(float_to_bf16(stored));
      if (golden_.dtype == "f16") stored = f16_to_float(float_to_f16(stored));
      if (view.dtype == DType::kBF16) stored = bf16_to_float(float_to_bf16(stored));
      ASSERT_EQ(element(view, static_cast<std::int64_t>(i)), stored) << name << " " << i;
    }
  }

  void expect_all_equal(const Loaded& loaded) const {
    expect_equal(loaded.weights.embedding, "model.embed_tokens.weight");
    expect_equal(loaded.weights.final_norm, "model.norm.weight");
    for (std::int32_t i = 0; i < loaded.config.num_layers; ++i) {
      const std::string prefix = "model.layers." + std::to_string(i) + ".";
      const LayerWeights& w = loaded.weights.layers[static_cast<std::size_t>(i)];
      expect_equal(w.input_norm, prefix + "input_layernorm.weight");
      expect_equal(w.q, prefix + "self_attn.q_proj.weight");
      expect_equal(w.k, prefix + "self_attn.k_proj.weight");
      expect_equal(w.v, prefix + "self_attn.v_proj.weight");
      expect_equal(w.o, prefix + "self_attn.o_proj.weight");
      expect_equal(w.post_attention_norm, prefix + "post_attention_layernorm.weight");
      expect_equal(w.gate, prefix + "mlp.gate_proj.weight");
      expect_equal(w.up, prefix + "mlp.up_proj.weight");
      expect_equal(w.down, prefix + "mlp.down_proj.weight");
      if (loaded.config.layers[static_cast<std::size_t>(i)].qkv_bias) {
        expect_equal(w.q_bias, prefix + "self_attn.q_proj.bias");
      }
      EXPECT_EQ(w.q_norm.empty(), !loaded.config.layers[static_cast<std::size_t>(i)].qk_norm);
    }
    if (loaded.config.tie_embeddings) {
      EXPECT_EQ(loaded.weights.lm_head.data, loaded.weights.embedding.data);
    } else {
      expect_equal(loaded.weights.lm_head, "lm_head.weight");
    }
  }

  TempDirectory directory_;
  GoldenCase golden_;
};

TEST_P(WeightsTest, AsStoredNothingIsCopied) {
  const Loaded loaded(directory_.path());
  EXPECT_EQ(loaded.copied_bytes, 0U);
  EXPECT_GT(loaded.mapped_bytes, 0U);
  expect_all_equal(loaded);
}

TEST_P(WeightsTest, AnotherDtypeIsConverted) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Loaded loaded(directory_.path(), dtype);
    EXPECT_EQ(loaded.weights.dtypes.matrices, dtype);
    EXPECT_EQ(loaded.weights.dtypes.others, dtype);
    EXPECT_EQ(loaded.weights.embedding.dtype, dtype);
    EXPECT_EQ(loaded.weights.layers[0].input_norm.dtype, dtype);
    if (dtype != loaded.sources.dtype) {
      EXPECT_EQ(loaded.mapped_bytes, 0U);
    }
    expect_all_equal(loaded);
  }
}

// In the smallest pieces, the last one first, by several threads.
TEST_P(WeightsTest, WeightsThatAreConvertedLaterHaveTheSameBytes) {
  for (const DType dtype : {DType::kF8E4M3, DType::kI8, DType::kI4, DType::kBF16, DType::kF32}) {
    Loaded now(directory_.path(), dtype);
    ArenaPlan plan;
    const WeightsLayout layout =
        WeightsLayout::plan(now.checkpoint, now.sources, dtype, now.device->traits(), "m", plan);
    plan.finish(now.device->traits().granularity);
    Arena arena = *Arena::create(*now.device, std::move(plan));
    ASSERT_TRUE(layout.load(arena, *now.device, now.pool, nullptr, Conversion::kLater));
    const auto bytes_of = [&](const Arena& in) {
      const std::byte* const region = in.region_base(RegionKind::kWeights);
      return std::span(region + layout.derived().offset, layout.derived().bytes);
    };
    const std::vector<DerivedPiece> pieces = layout.pieces(1);
    EXPECT_TRUE(std::ranges::is_sorted(pieces, {}, &DerivedPiece::stage));
    const int count = static_cast<int>(pieces.size());
    EXPECT_EQ(count == 0, std::ranges::equal(bytes_of(arena), bytes_of(*now.arena)));
    now.pool.parallel_for(count, [&](int task) {
      EXPECT_TRUE(layout.convert(pieces[static_cast<std::size_t>(count - 1 - task)], arena));
    });
    EXPECT_TRUE(std::ranges::equal(bytes_of(arena), bytes_of(*now.arena))) << dtype_name(dtype);
  }
}

TEST_P(WeightsTest, AStageHasItsOwnLayersOnly) {
  const Loaded loaded(directory_.path(), {}, 1, 2);
  ASSERT_EQ(loaded.weights.layers.size(), 1U);
  expect_equal(loaded.weights.layers[0].q, "model.layers.1.self_attn.q_proj.weight");
  EXPECT_TRUE(loaded.weights.embedding.empty());
}

TEST_P(WeightsTest, TensorsThatTheFileAlignsBadlyAreCopied) {
  // One more space in the header moves every tensor to an odd offset.
  std::ifstream in(directory_.file("model.safetensors"), std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const std::string header = file.substr(8, length) + " ";
  directory_.write("model.safetensors", safetensors_bytes(header, file.substr(8 + length)));
  const Loaded loaded(directory_.path());
  EXPECT_EQ(loaded.mapped_bytes, 0U);
  EXPECT_GT(loaded.copied_bytes, 0U);
  expect_all_equal(loaded);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The bytes of a layer's matrices.
std::vector<float> counted(const TensorView& weight, const BlockScales& scales) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < weight.elements(); ++i) {
    if (weight.dtype != DType::kF8E4M3) {
      values.push_back(element(weight, i));
      continue;
    }
    const std::int64_t block = i / weight.dims[1] / scales.block_rows * scales.stride +
                               i % weight.dims[1] / scales.block_cols;
    values.push_back(e4m3_to_float(weight.as<std::uint8_t>()[i]) * scales.values[block]);
  }
  return values;
}

class Fp8WeightsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", GetParam()), directory_.path());
  }
  TempDirectory directory_;
};

TEST_P(Fp8WeightsTest, AreMappedFromTheFileOrExpanded) {
  const Loaded stored(directory_.path());
  const Loaded named(directory_.path(), DType::kF8E4M3);
  const Loaded expanded(directory_.path(), DType::kF32);
  EXPECT_EQ(stored.weights.dtypes.matrices, DType::kF8E4M3);
  EXPECT_EQ(stored.weights.dtypes.others, stored.sources.dtype);
  EXPECT_EQ(expanded.weights.dtypes.matrices, DType::kF32);
  EXPECT_EQ(expanded.mapped_bytes, 0U);
  const LayerWeights& layer = stored.weights.layers[1];
  EXPECT_EQ(layer.input_norm.dtype, stored.sources.dtype);
  // The matrix is mapped from the file; its scales are copied.
  std::uint64_t scales = 0;
  for (const LayerWeightSources& sources : stored.sources.layers) {
    for (const WeightSource& source : sources.weights) scales += source.scales.bytes;
  }
  EXPECT_GT(scales, 0U);
  EXPECT_EQ(stored.copied_bytes, scales);
  const auto matrices = [](const LayerWeights& w) {
    return std::array{counted(w.q, w.q_scales),       counted(w.k, w.k_scales),
                      counted(w.v, w.v_scales),       counted(w.o, w.o_scales),
                      counted(w.gate, w.gate_scales), counted(w.up, w.up_scales),
                      counted(w.down, w.down_scales)};
  };
  EXPECT_EQ(layer.q.dtype, DType::kF8E4M3);
  EXPECT_EQ(expanded.weights.layers[1].q_scales.values, nullptr);
  EXPECT_EQ(matrices(layer), matrices(expanded.weights.layers[1]));
  EXPECT_EQ(matrices(named.weights.layers[1]), matrices(layer));
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8WeightsTest,
                         testing::Values("llama-fp8-block", "qwen2-fp8-channel",
                                         "qwen3-fp8-tensor"),
                         test_name);

// Quantizing while loading gives the same bytes as a checkpoint published in FP8.
TEST(Fp8WeightsOnDevices, QuantizedWhileLoading) {
  GoldenCase golden = read_golden_case("tests/golden/models", "llama-fp8-block");
  const TempDirectory published;
  write_golden_checkpoint(golden, published.path());
  const Loaded fp8(published.path());
  // The same model in F32.
  const TempDirectory plain;
  auto config = parse_json(golden.config);
  config.erase("quantization_config");
  golden.config = dump_json(config);
  golden.dtype = "f32";
  golden.weights_sha256.clear();
  write_golden_checkpoint(golden, plain.path());
  const Loaded quantized(plain.path(), DType::kF8E4M3);
  EXPECT_EQ(quantized.weights.dtypes.others, DType::kF32);
  EXPECT_EQ(quantized.weights.embedding.dtype, DType::kF32);
  const LayerWeights& a = fp8.weights.layers[1];
  const LayerWeights& b = quantized.weights.layers[1];
  EXPECT_EQ(counted(a.q, a.q_scales), counted(b.q, b.q_scales));
  EXPECT_EQ(counted(a.down, a.down_scales), counted(b.down, b.down_scales));
  EXPECT_EQ(std::memcmp(a.gate.data, b.gate.data, static_cast<std::size_t>(a.gate.elements())), 0);
  EXPECT_EQ(quantized.mapped_bytes > 0, true) << "embedding and norms lie in the file";
}

// Codes times scales are within half a step of the file's values.
TEST(Int8Weights, AllMatricesAreQuantizedWhileLoading) {
  const TempDirectory directory;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                          directory.path());
  const Loaded stored(directory.path());
  const Loaded int8(directory.path(), DType::kI8);
  EXPECT_EQ(int8.weights.dtypes.others, DType::kF32);
  EXPECT_EQ(int8.weights.final_norm.dtype, DType::kF32);
  EXPECT_EQ(int8.weights.lm_head.data, int8.weights.embedding.data);
  EXPECT_EQ(int8.weights.lm_head_scales.values, int8.weights.embedding_scales.values);
  const auto expect_near = [](const TensorView& want, const TensorView& codes,
                              const BlockScales& scales) {
    ASSERT_EQ(codes.dtype, DType::kI8);
    for (std::int64_t i = 0; i < want.elements(); ++i) {
      const float scale = scales.values[i / want.dims[1]];
      ASSERT_NEAR(static_cast<float>(codes.as<std::int8_t>()[i]) * scale, element(want, i),
                  scale * 0.5001F);
    }
  };
  expect_near(stored.weights.embedding, int8.weights.embedding, int8.weights.embedding_scales);
  const LayerWeights& a = stored.weights.layers[1];
  const LayerWeights& b = int8.weights.layers[1];
  expect_near(a.k, b.k, b.k_scales);
  expect_near(a.down, b.down, b.down_scales);
}

TEST(Fp8WeightsOnDevices, BadNumbersAreNamed) {
  const GoldenCase golden = read_golden_case("tests/golden/models", "qwen3-fp8-tensor");
  const TempDirectory directory;
  write_golden_checkpoint(golden, directory.path());
  const Checkpoint checkpoint = *Checkpoint::open(directory.path());
  const TensorInfo& matrix = *checkpoint.find("model.layers.1.mlp.up_proj.weight");
  const TensorInfo& scale = *checkpoint.find("model.layers.1.mlp.up_proj.weight_scale");
  const auto error_with = [&](std::uint64_t offset, const std::string& bytes, bool late) {
    std::fstream file(directory.file("model.safetensors"),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset)) << bytes;
    file.close();
    ThreadPool pool(1);
    std::unique_ptr<Device> device = *make_cpu_device({&pool, 0, {}});
    if (late) device = std::make_unique<test::LateDevice>(std::move(device));
    const ModelConfig config = *load_model_config(directory.path());
    const Checkpoint bad = *Checkpoint::open(directory.path());
    const ModelWeightsPlan sources = *resolve_weights(config, bad, 0, config.num_layers);
    ArenaPlan plan;
    const WeightsLayout layout =
        WeightsLayout::plan(bad, sources, std::nullopt, device->traits(), "m", plan);
    plan.finish(device->traits().granularity);
    Arena arena = *Arena::create(*device, std::move(plan));
    const auto loaded = layout.load(arena, *device, pool);
    EXPECT_TRUE(device->synchronize());
    return loaded ? "no error" : loaded.error().message;
  };
  EXPECT_EQ(error_with(matrix.offset + 100, "\x7f", true),
            "model.layers.1.mlp.up_proj.weight: holds NaN; expected FP8 codes of finite weights");
  EXPECT_EQ(error_with(scale.offset, std::string("\0\0\xc0\xff", 4), false),
            "model.layers.1.mlp.up_proj.weight: scale 0 is -nan; expected a finite number of at "
            "least 0");
}

// A dummy model on a device; the same bytes come to the host.
std::vector<std::byte> dummy_bytes(const ModelConfig& config, std::unique_ptr<Device> device,
                                   ThreadPool& pool) {
  const Checkpoint none = Checkpoint::without_files("nowhere");
  const ModelWeightsPlan sources = plan_dummy_weights(config, DType::kBF16);
  ArenaPlan plan;
  const WeightsLayout layout =
      WeightsLayout::plan(none, sources, std::nullopt, device->traits(), "m", plan);
  EXPECT_EQ(layout.mapped_bytes(), 0U);
  plan.finish(device->traits().granularity);
  Arena arena = *Arena::create(*device, std::move(plan));
  const DecoderWeights weights = *layout.load(arena, *device, pool);
  std::vector<std::byte> bytes;
  for (const TensorView& view : {weights.embedding, weights.lm_head, weights.final_norm,
                                 weights.layers.back().down, weights.layers.front().q}) {
    const std::size_t before = bytes.size();
    bytes.resize(before + static_cast<std::size_t>(view.elements()) * size_of(view.dtype));
    EXPECT_TRUE(device->copy_to_host(bytes.data() + before, view.data, bytes.size() - before));
    EXPECT_TRUE(device->synchronize());
  }
  return bytes;
}

// Copied weights of one product are contiguous, as a library that computes them in one call needs
// it. The product's biases are contiguous too, in F32.
TEST(CopiedWeights, AreContiguousPerProduct) {
  const TempDirectory directory;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen2-gqa7-tied"),
                          directory.path());
  const Checkpoint checkpoint = *Checkpoint::open(directory.path());
  const ModelConfig config = *load_model_config(directory.path());
  const ModelWeightsPlan sources = *resolve_weights(config, checkpoint, 0, config.num_layers);
  ThreadPool pool(1);
  const test::LateDevice device(*make_cpu_device({&pool, 0, {}}));
  ArenaPlan plan;
  WeightsLayout::plan(checkpoint, sources, std::nullopt, device.traits(), "m", plan);
  const auto place = [&](const std::string& name) {
    for (const BufferPlan& buffer : plan.region(RegionKind::kWeights).buffers) {
      if (buffer.name == "m/model.layers.1." + name) return buffer;
    }
    ADD_FAILURE() << name;
    return BufferPlan{};
  };
  const auto expect_behind = [&](const std::string& first, const std::string& next) {
    EXPECT_EQ(place(first).offset + place(first).bytes, place(next).offset) << next;
  };
  expect_behind("self_attn.q_proj.weight", "self_attn.k_proj.weight");
  expect_behind("self_attn.k_proj.weight", "self_attn.v_proj.weight");
  expect_behind("self_attn.q_proj.bias", "self_attn.k_proj.bias");
  expect_behind("self_attn.k_proj.bias", "self_attn.v_proj.bias");
  expect_behind("mlp.gate_proj.weight", "mlp.up_proj.weight");
  const auto q_width = static_cast<std::size_t>(config.layers[1].q_width());
  EXPECT_EQ(place("self_attn.q_proj.bias").bytes, q_width * sizeof(float));
}

TEST(DummyWeightsOnDevices, AreFilledInPlaceOrCopiedFromTheHost) {
  const TempDirectory directory;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-layer-types-biases"),
                          directory.path());
  const ModelConfig config = *load_model_config(directory.path());
  ThreadPool pool(2);
  const auto direct = dummy_bytes(config, *make_cpu_device({&pool, 0, {}}), pool);
  // Copies run as late as allowed, so the test fails if their source is freed too early.
  auto late = std::make_unique<test::LateDevice>(*make_cpu_device({&pool, 0, {}}));
  ASSERT_FALSE(late->traits().host_accessible);
  EXPECT_EQ(dummy_bytes(config, std::move(late), pool), direct);
  EXPECT_GT(
      std::count_if(direct.begin(), direct.end(), [](std::byte b) { return b != std::byte{}; }),
      static_cast<std::ptrdiff_t>(direct.size() / 2));
}

INSTANTIATE_TEST_SUITE_P(Models, WeightsTest,
                         testing::Values("llama-gqa-tied-f32", "llama-mha", "llama-gelu-f16",
                                         "qwen2-gqa7-tied", "qwen3-layer-types-biases"),
                         test_name);

}  // namespace
}  // namespace sluice
