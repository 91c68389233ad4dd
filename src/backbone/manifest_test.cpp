// The manifest's round trip, and what decoding refuses.
#include "backbone/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/fuzz_seed.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr std::size_t kBytes = 1 << 16;

// One layer: a matrix in FP8 with scales, and the tensors that every model has.
struct Example {
  alignas(64) std::byte memory[kBytes];
  DecoderWeights weights;
  BackboneManifest manifest;

  Example() {
    weights.dtypes = {DType::kF8E4M3, DType::kBF16, DType::kBF16};
    weights.embedding = matrix_view(memory, DType::kBF16, 8, 4);
    weights.final_norm = vector_view(memory + 64, DType::kBF16, 4);
    weights.lm_head = weights.embedding;
    weights.rope_tables.push_back(matrix_view(memory + 128, DType::kF32, 16, 2));
    weights.layers.resize(1);
    weights.layers[0].q = matrix_view(memory + 256, DType::kF8E4M3, 4, 6);
    weights.layers[0].q_scales = {reinterpret_cast<const float*>(memory + 512), 4, 4, 2};
    weights.layers[0].down_bias = vector_view(memory + 1024, DType::kF32, 4);
    manifest.config = "{}";
    manifest.numerics = "cpu";
    manifest.bytes = kBytes;
    manifest.hash = {1, 2};
    manifest.max_model_len = 16;
    describe_weights(weights, memory, manifest);
  }
};

TEST(BackboneManifest, WeightsComeBackAtAnotherBase) {
  const Example example;
  const auto decoded = decode_manifest(encode_manifest(example.manifest));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, example.manifest);
  std::vector<std::byte> elsewhere(kBytes);
  const DecoderWeights weights = weights_at(elsewhere.data(), *decoded);
  EXPECT_EQ(weights.embedding.data, elsewhere.data());
  EXPECT_EQ(weights.lm_head.data, weights.embedding.data);
  EXPECT_EQ(weights.layers[0].q.dims[1], 6);
  EXPECT_EQ(static_cast<const void*>(weights.layers[0].q_scales.values), elsewhere.data() + 512);
  EXPECT_EQ(weights.layers[0].q_scales.stride, 2);
  EXPECT_EQ(weights.layers[0].down_bias.data, elsewhere.data() + 1024);
  EXPECT_TRUE(weights.layers[0].k.empty());
  EXPECT_EQ(weights.rope_tables[0].dims[0], 16);
  EXPECT_EQ(weights.embedding_scales.values, nullptr);
}

// An embedding in INT8 with its scales, which is also lm_head, and a matrix in INT4.
TEST(BackboneManifest, IntegerWeightsComeBackWithTheirScales) {
  Example example;
  DecoderWeights& from = example.weights;
  from.dtypes = {DType::kI4, DType::kBF16, DType::kI8};
  from.embedding = from.lm_head = matrix_view(example.memory, DType::kI8, 8, 4);
  from.embedding_scales = {reinterpret_cast<const float*>(example.memory + 2048), 1, 4, 1};
  from.lm_head_scales = from.embedding_scales;
  from.layers[0].q = matrix_view(example.memory + 4096, DType::kI4, 4, 40);
  from.layers[0].q_scales = {};
  example.manifest.tensors.clear();
  example.manifest.scales.clear();
  describe_weights(from, example.memory, example.manifest);
  const auto decoded = decode_manifest(encode_manifest(example.manifest));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, example.manifest);
  std::vector<std::byte> elsewhere(kBytes);
  const DecoderWeights weights = weights_at(elsewhere.data(), *decoded);
  EXPECT_EQ(weights.dtypes.matrices, DType::kI4);
  EXPECT_EQ(weights.dtypes.ends, DType::kI8);
  EXPECT_EQ(weights.lm_head.dtype, DType::kI8);
  for (const BlockScales& scales : {weights.embedding_scales, weights.lm_head_scales}) {
    EXPECT_EQ(static_cast<const void*>(scales.values), elsewhere.data() + 2048);
    EXPECT_EQ(scales.block_cols, 4);
  }
  EXPECT_EQ(weights.layers[0].q.dtype, DType::kI4);
  EXPECT_EQ(weights.layers[0].q.strides[0], 64);  // whole blocks
  EXPECT_EQ(weights.layers[0].q_scales.values, nullptr);
}

TEST(BackboneManifest, EveryCutIsRefused) {
  const std::vector<std::byte> bytes = encode_manifest(Example().manifest);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode_manifest(std::span(bytes).first(size))) << size;
  }
}

// The error of the example with one change.
template <class Change>
std::string error_after(const Change& change) {
  BackboneManifest manifest = Example().manifest;
  change(manifest);
  const auto decoded = decode_manifest(encode_manifest(manifest));
  return decoded ? "accepted" : decoded.error().message;
}

TEST(BackboneManifest, PlacesOutsideOfTheBackboneAreRefused) {
  using M = BackboneManifest;
  EXPECT_THAT(error_after([](M& m) { m.tensors[0].offset = kBytes - 4; }), HasSubstr("outside"));
  EXPECT_THAT(error_after([](M& m) { m.tensors[0].offset = 1; }), HasSubstr("between"));
  EXPECT_THAT(error_after([](M& m) { m.tensors[0].dims[0] = 1 << 30; }), HasSubstr("outside"));
  EXPECT_THAT(error_after([](M& m) {
                m.tensors[0].dims = {(std::int64_t{1} << 31) - 1, (std::int64_t{1} << 31) - 1};
                m.tensors[0].dtype = DType::kF32;
              }),
              HasSubstr("outside"));
  EXPECT_THAT(error_after([](M& m) { m.tensors[0].dims[0] = 0; }), HasSubstr("shape"));
  EXPECT_THAT(error_after([](M& m) { m.tensors[1].rank = 3; }), HasSubstr("rank"));
  EXPECT_THAT(error_after([](M& m) { m.tensors[0].dtype = DType::kQ4K; }), HasSubstr("dtype"));
  EXPECT_THAT(error_after([](M& m) { m.dtypes.ends = DType::kQ4K; }), HasSubstr("dtype"));
  EXPECT_THAT(error_after([](M& m) { m.tensors[1].dtype = DType::kI4; }), HasSubstr("in blocks"));
  // Eight rows of one block each, which need no alignment.
  const auto in_blocks = [](std::uint64_t from_end) {
    return error_after([&](M& m) {
      m.tensors[0].dtype = DType::kI4;
      m.tensors[0].offset = kBytes - from_end;
    });
  };
  EXPECT_EQ(in_blocks(8 * 18 + 1), "accepted");
  EXPECT_EQ(in_blocks(8 * 18), "accepted");
  EXPECT_THAT(in_blocks(8 * 18 - 1), HasSubstr("outside"));
  constexpr std::size_t kOfQ = 2;  // after those of the embedding and lm_head
  EXPECT_THAT(error_after([](M& m) { m.scales[kOfQ].offset = kBytes - 4; }), HasSubstr("outside"));
  EXPECT_THAT(error_after([](M& m) { m.scales[kOfQ].stride = 1; }), HasSubstr("cover"));
  EXPECT_THAT(error_after([](M& m) { m.bytes = 0; }), HasSubstr("bytes"));
  EXPECT_THAT(error_after([](M& m) { m.max_model_len = 0; }), HasSubstr("max_model_len"));
}

TEST(BackboneManifest, ChunksFillTheBackboneAtAnAddressOfTheirs) {
  using M = BackboneManifest;
  const auto error_with = [](std::uint64_t chunk_bytes, std::uint64_t address) {
    return error_after([&](M& m) {
      m.chunk_bytes = chunk_bytes;
      m.address = address;
    });
  };
  EXPECT_EQ(error_with(kBytes / 4, kBytes), "accepted");
  EXPECT_EQ(error_with(kBytes, kBytes), "accepted");
  EXPECT_THAT(error_with(kBytes / 4 + 1, kBytes), HasSubstr("chunk_bytes"));
  EXPECT_THAT(error_with(kBytes * 2, kBytes * 2), HasSubstr("chunk_bytes"));
  EXPECT_THAT(error_with(kBytes / 4, 0), HasSubstr("address"));
  EXPECT_THAT(error_with(kBytes / 4, kBytes + 1), HasSubstr("address"));
  EXPECT_THAT(error_with(kBytes / 4, std::uint64_t{1} << 60), HasSubstr("address"));
  EXPECT_THAT(error_with(0, kBytes), HasSubstr("address"));
}

TEST(BackboneManifest, OtherFilesAreRefused) {
  EXPECT_FALSE(decode_manifest({}));
  std::vector<std::byte> bytes = encode_manifest(Example().manifest);
  bytes[20] = std::byte{9};  // the version, after the magic text
  EXPECT_THAT(decode_manifest(bytes).error().message, HasSubstr("version"));
}

TEST(BackboneManifest, TheSeedsOfItsFuzzTargetDecode) {
  const Example example;
  expect_fuzz_seed("backbone_manifest/fp8", encode_manifest(example.manifest));
  Example plain;
  plain.weights.dtypes = {DType::kF32, DType::kF32, DType::kF32};
  plain.weights.rope_tables.push_back(plain.weights.rope_tables[0]);
  plain.weights.layers.assign(2, {});
  plain.manifest = {};
  plain.manifest.config = R"({"model_type": "llama"})";
  plain.manifest.generation = R"({"eos_token_id": 2})";
  plain.manifest.numerics = "cpu";
  plain.manifest.bytes = kBytes;
  plain.manifest.max_model_len = 16;
  describe_weights(plain.weights, plain.memory, plain.manifest);
  const std::vector<std::byte> bytes = encode_manifest(plain.manifest);
  EXPECT_TRUE(decode_manifest(bytes));
  expect_fuzz_seed("backbone_manifest/two_layers", bytes);
}

}  // namespace
}  // namespace sluice
