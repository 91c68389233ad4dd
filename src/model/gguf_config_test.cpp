#include "model/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "model/gguf_names.h"
#include "model/model_config.h"
#include "model/rope.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_files.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The metadata of a small model of `architecture`, and the tensors from which the sizes follow.
GgufBuilder small_gguf(const std::string& architecture) {
  GgufBuilder builder;
  builder.text("general.architecture", architecture)
      .text("general.name", "small")
      .u32(architecture + ".context_length", 512)
      .u32(architecture + ".embedding_length", 32)
      .u32(architecture + ".block_count", 2)
      .u32(architecture + ".feed_forward_length", 48)
      .u32(architecture + ".attention.head_count", 4)
      .u32(architecture + ".attention.head_count_kv", 2)
      .f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F)
      .f32(architecture + ".rope.freq_base", 500000.0F)
      .u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eos_token_id", 2)
      .u32("tokenizer.ggml.eot_token_id", 3)
      .tensor("token_embd.weight", {32, 10}, GgufTensorType::kF16, std::string(640, '\0'));
  return builder;
}

Result<std::string> gguf_config_text(const GgufBuilder& builder) {
  const TempDirectory directory;
  directory.write("m.gguf", builder.bytes());
  ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(directory.file("m.gguf")));
  return gguf_config_json(model);
}

Result<ModelConfig> gguf_config_of(const GgufBuilder& builder) {
  ASSIGN_OR_RETURN(const std::string text, gguf_config_text(builder));
  return parse_model_config(text);
}

std::string gguf_config_error(const GgufBuilder& builder) {
  const auto text = gguf_config_text(builder);
  return text ? "no error: " + *text : text.error().message;
}

// The factors that a converter writes for Llama 3.1, by their definition.
std::string llama3_factors(double factor, std::size_t count) {
  RopeConfig rope;
  rope.theta = 500000.0;
  rope.rotary_dim = static_cast<std::int32_t>(2 * count);
  std::string raw;
  for (const float frequency : rope_inverse_frequencies(rope)) {
    const double wavelength = 2 * 3.14159265358979323846 / double{frequency};
    const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
    double divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
    if (wavelength < 8192.0 / 4.0) divisor = 1.0;
    if (wavelength > 8192.0) divisor = factor;
    raw += gguf_number(static_cast<float>(divisor));
  }
  return raw;
}

TEST(GgufConfig, ReadsLlama) {
  const auto config = gguf_config_of(small_gguf("llama"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->family, Family::kLlama);
  EXPECT_EQ(config->vocab_size, 10);
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->max_position_embeddings, 512);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_EQ(config->norm_epsilon, 1e-5F);
  EXPECT_EQ(config->bos_token, TokenId{1});
  EXPECT_THAT(config->eos_tokens, ElementsAre(2, 3));
  const LayerConfig& layer = config->layers.front();
  EXPECT_EQ(layer.num_heads, 4);
  EXPECT_EQ(layer.num_kv_heads, 2);
  EXPECT_EQ(layer.head_dim, 8);
  EXPECT_EQ(layer.intermediate_size, 48);
  EXPECT_FALSE(layer.qkv_bias || layer.o_bias || layer.mlp_bias || layer.qk_norm);
  EXPECT_EQ(layer.window, 0);
  EXPECT_EQ(config->ropes.front().type, RopeType::kDefault);
  EXPECT_EQ(config->ropes.front().theta, 500000.0);
}

// Files of Llama 3 named the end of text alone. Only control tokens count.
TEST(GgufConfig, KnownEndsOfTurnsEndAnswers) {
  GgufBuilder builder = small_gguf("llama");
  std::string types;
  for (const std::int32_t type : {1, 1, 3, 3, 1, 3, 3, 1}) types += gguf_number(type);
  builder.u32("tokenizer.ggml.eom_token_id", 6)
      .texts("tokenizer.ggml.tokens",
             {"a", "b", "<|end_of_text|>", "<|x|>", "</s>", "<|eot_id|>", "<|y|>", "c"})
      .array("tokenizer.ggml.token_type", GgufValueType::kI32, 8, types);
  const auto config = gguf_config_of(builder);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_THAT(config->eos_tokens, ElementsAre(2, 3, 6, 5));
}

TEST(GgufConfig, ReadsWhatTensorsSay) {
  GgufBuilder builder = small_gguf("llama");
  builder.tensor("output.weight", {32, 10}, GgufTensorType::kQ8_0, std::string(340, '\0'))
      .tensor("blk.0.attn_q.bias", {32}, GgufTensorType::kF32, std::string(128, '\0'))
      .tensor("blk.0.ffn_gate.bias", {48}, GgufTensorType::kF32, std::string(192, '\0'));
  const auto config = gguf_config_of(builder);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_FALSE(config->tie_embeddings);
  EXPECT_TRUE(config->layers.front().qkv_bias && config->layers.front().mlp_bias);
}

TEST(GgufConfig, ReadsQwen) {
  const auto qwen2 = gguf_config_of(small_gguf("qwen2"));
  ASSERT_TRUE(qwen2) << qwen2.error().message;
  EXPECT_EQ(qwen2->family, Family::kQwen2);
  EXPECT_TRUE(qwen2->layers.front().qkv_bias);
  EXPECT_FALSE(qwen2->layers.front().o_bias);
  EXPECT_EQ(qwen2->layers.front().window, 0);
  const auto qwen3 = gguf_config_of(small_gguf("qwen3")
                                        .u32("qwen3.attention.key_length", 16)
                                        .u32("qwen3.attention.value_length", 16));
  ASSERT_TRUE(qwen3) << qwen3.error().message;
  EXPECT_EQ(qwen3->family, Family::kQwen3);
  EXPECT_EQ(qwen3->layers.front().head_dim, 16);
  EXPECT_TRUE(qwen3->layers.front().qk_norm);
}

TEST(GgufConfig, ReadsScaledRotations) {
  const auto yarn = gguf_config_of(small_gguf("qwen2")
                                       .text("qwen2.rope.scaling.type", "yarn")
                                       .f32("qwen2.rope.scaling.factor", 4.0F)
                                       .u32("qwen2.rope.scaling.original_context_length", 128));
  ASSERT_TRUE(yarn) << yarn.error().message;
  EXPECT_EQ(yarn->ropes.front().type, RopeType::kYarn);
  EXPECT_EQ(yarn->ropes.front().factor, 4.0);
  EXPECT_EQ(yarn->ropes.front().original_max_positions, 128);

  const auto with_factors = [](std::string raw) {
    return small_gguf("llama")
        .u32("llama.attention.key_length", 64)
        .tensor("rope_freqs.weight", {32}, GgufTensorType::kF32, raw);
  };
  const std::string factors = llama3_factors(32.0, 32);
  const auto llama3 = gguf_config_of(with_factors(factors));
  ASSERT_TRUE(llama3) << llama3.error().message;
  EXPECT_EQ(llama3->ropes.front().type, RopeType::kLlama3);
  EXPECT_EQ(llama3->ropes.front().factor, 32.0);
  EXPECT_EQ(llama3->ropes.front().original_max_positions, 8192);
  std::string other = factors;
  other.replace(20, 4, gguf_number(1.5F));
  EXPECT_THAT(gguf_config_error(with_factors(other)),
              HasSubstr("tensor \"rope_freqs.weight\": element 5 is 1.5"));
  EXPECT_THAT(gguf_config_error(with_factors(std::string(128, '\0'))), HasSubstr("element 0 is 0"));
  EXPECT_THAT(gguf_config_error(small_gguf("llama").tensor(
                  "rope_freqs.weight", {3}, GgufTensorType::kF32, std::string(12, 'x'))),
              HasSubstr("is F32 of shape [3]; expected F32 of shape [4]"));
}

TEST(GgufConfig, ReadsAFactorWithoutATypeAsLinear) {
  const auto scaled = gguf_config_of(small_gguf("llama").f32("llama.rope.scaling.factor", 2.0F));
  ASSERT_TRUE(scaled) << scaled.error().message;
  EXPECT_EQ(scaled->ropes.front().type, RopeType::kLinear);
  EXPECT_EQ(scaled->ropes.front().factor, 2.0);

  const auto none = gguf_config_of(small_gguf("llama")
                                       .text("llama.rope.scaling.type", "none")
                                       .f32("llama.rope.scaling.factor", 2.0F));
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_EQ(none->ropes.front().type, RopeType::kDefault);
  EXPECT_THAT(gguf_config_error(small_gguf("llama")
                                    .f32("llama.rope.scaling.factor", 2.0F)
                                    .tensor("rope_freqs.weight", {4}, GgufTensorType::kF32,
                                            llama3_factors(8.0, 4))),
              HasSubstr("is \"linear\" beside tensor \"rope_freqs.weight\""));
}

TEST(GgufConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(gguf_config_error(small_gguf("gemma3")),
              HasSubstr("metadata \"general.architecture\": \"gemma3\" is not supported"));
  EXPECT_THAT(gguf_config_error(small_gguf("llama").u32("llama.attention.sliding_window", 8)),
              HasSubstr("metadata \"llama.attention.sliding_window\": is not supported"));
  EXPECT_THAT(gguf_config_error(small_gguf("llama").u32("llama.expert_count", 8)),
              HasSubstr("metadata \"llama.expert_count\": is 8; mixtures of experts"));
  EXPECT_THAT(gguf_config_error(small_gguf("llama").u32("llama.rope.dimension_count", 4)),
              HasSubstr("metadata \"llama.rope.dimension_count\": is 4; expected 8"));
  EXPECT_THAT(gguf_config_error(small_gguf("llama").text("llama.rope.scaling.type", "longrope")),
              HasSubstr("\"longrope\" is not supported; expected none, linear or yarn"));
  EXPECT_THAT(gguf_config_error(small_gguf("llama").tensor("blk.0.attn_sinks.weight", {1},
                                                           GgufTensorType::kF32, "abcd")),
              HasSubstr("tensor \"blk.0.attn_sinks.weight\": is not known"));
  EXPECT_THAT(gguf_config_error(GgufBuilder().text("general.architecture", "llama")),
              HasSubstr("tensor \"token_embd.weight\" is missing"));
  EXPECT_THAT(gguf_config_error(GgufBuilder()), HasSubstr("\"general.architecture\": is missing"));
}

TEST(GgufNames, MapToThoseOfTheHub) {
  EXPECT_EQ(checkpoint_name("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(checkpoint_name("output.weight"), "lm_head.weight");
  EXPECT_EQ(checkpoint_name("blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(checkpoint_name("blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  for (const char* name : {"blk.attn_q.weight", "blk.01.attn_q.weight", "blk.x.attn_q.weight",
                           "blk.1.attn_q.scale", "blk.1.ffn_gate_exps.weight", "blk.1.weight",
                           "blk..attn_q.weight", "rope_freqs.weight", ""}) {
    EXPECT_FALSE(checkpoint_name(name)) << name;
  }
  EXPECT_TRUE(has_paired_rows("blk.1.attn_k.weight"));
  EXPECT_TRUE(has_paired_rows("blk.1.attn_q.bias"));
  EXPECT_FALSE(has_paired_rows("blk.1.attn_v.weight"));
  EXPECT_FALSE(has_paired_rows("blk.1.attn_q_norm.weight"));
}

// Converters reshape [heads, 2, half] to [heads, half, 2]: the row that was (head, part, place).
TEST(GgufNames, PairsOfRowsAreHalvesOfAHead) {
  constexpr std::int64_t kHeadDim = 6;
  std::set<std::int64_t> rows;
  for (std::int64_t head = 0; head < 3; ++head) {
    for (std::int64_t part = 0; part < 2; ++part) {
      for (std::int64_t place = 0; place < 3; ++place) {
        const std::int64_t row = paired_row(head * kHeadDim + part * 3 + place, kHeadDim);
        EXPECT_EQ(row, head * kHeadDim + place * 2 + part);
        rows.insert(row);
      }
    }
  }
  EXPECT_EQ(rows.size(), 18U);
}

}  // namespace
}  // namespace sluice
