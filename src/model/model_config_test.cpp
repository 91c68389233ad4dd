#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 1000},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"torch_dtype", "bfloat16"}};
}

json of_family(std::string_view family, std::string_view architecture) {
  json config = llama();
  config["model_type"] = family;
  config["architectures"] = {architecture};
  return config;
}
json mistral() { return of_family("mistral", "MistralForCausalLM"); }
json qwen2() { return of_family("qwen2", "Qwen2ForCausalLM"); }
json qwen3() { return of_family("qwen3", "Qwen3ForCausalLM"); }

ModelConfig parsed(const json& config) {
  auto result = parse_model_config(dump_json(config));
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : ModelConfig();
}

std::string error_of(const json& config) {
  auto result = parse_model_config(dump_json(config));
  return result ? "no error" : result.error().message;
}

std::string error_with(json config, std::string_view field, const json& value) {
  config[std::string(field)] = value;
  return error_of(config);
}

TEST(ModelConfig, ReadsLlama) {
  const ModelConfig config = parsed(llama());
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.vocab_size, 1000);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_FALSE(config.tie_embeddings);
  EXPECT_EQ(config.norm_epsilon, 1e-5F);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, std::vector<TokenId>{2});
  EXPECT_EQ(config.dtype, DType::kBF16);
  ASSERT_EQ(config.layers.size(), 2U);
  const LayerConfig& layer = config.layers[1];
  EXPECT_EQ(layer.num_heads, 4);
  EXPECT_EQ(layer.num_kv_heads, 2);
  EXPECT_EQ(layer.head_dim, 16);
  EXPECT_EQ(layer.window, 0);
  EXPECT_FALSE(layer.qkv_bias || layer.o_bias || layer.mlp_bias || layer.qk_norm);
  EXPECT_EQ(layer.intermediate_size, 128);
  EXPECT_EQ(layer.activation, GatedActivation::kSilu);
  EXPECT_EQ(layer.q_width(), 64);
  EXPECT_EQ(layer.kv_width(), 32);
  EXPECT_EQ(layer.attention_scale(), 0.25F);
  ASSERT_EQ(config.ropes.size(), 1U);
  EXPECT_EQ(config.ropes[0].type, RopeType::kDefault);
  EXPECT_EQ(config.ropes[0].rotary_dim, 16);
  EXPECT_EQ(config.ropes[0].theta, 10000.0);
}

TEST(ModelConfig, TakesTransformersDefaults) {
  json config = llama();
  for (const char* name : {"num_key_value_heads", "rms_norm_eps", "rope_theta", "bos_token_id",
                           "eos_token_id", "torch_dtype", "architectures"}) {
    config.erase(name);
  }
  const ModelConfig model = parsed(config);
  EXPECT_EQ(model.layers[0].num_kv_heads, 4);
  EXPECT_EQ(model.norm_epsilon, 1e-6F);
  EXPECT_EQ(model.ropes[0].theta, 10000.0);
  EXPECT_FALSE(model.bos_token || model.dtype);
  EXPECT_TRUE(model.eos_tokens.empty());

  json other = mistral();
  other["num_attention_heads"] = 8;
  other.erase("num_key_value_heads");
  EXPECT_EQ(parsed(other).layers[0].num_kv_heads, 8);
  EXPECT_EQ(parsed(other).layers[0].window, 4096);  // absent is not null
  other["num_attention_heads"] = 16;
  other["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parsed(other).layers[0].num_kv_heads, 16);
  EXPECT_EQ(parsed(qwen3()).layers[0].head_dim, 128);
}

TEST(ModelConfig, ReadsHeadDimThatIsNotHiddenOverHeads) {
  json config = llama();
  config["head_dim"] = 24;
  config["hidden_size"] = 50;
  EXPECT_EQ(parsed(config).layers[0].q_width(), 96);
  config["head_dim"] = nullptr;
  EXPECT_THAT(error_of(config), HasSubstr("config.json: hidden_size: 50 is not a multiple"));
}

TEST(ModelConfig, ReadsBiasesPerFamily) {
  json config = llama();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  const LayerConfig layer = parsed(config).layers[0];
  EXPECT_TRUE(layer.qkv_bias && layer.o_bias && layer.mlp_bias);

  const LayerConfig qwen2_layer = parsed(qwen2()).layers[0];
  EXPECT_TRUE(qwen2_layer.qkv_bias);
  EXPECT_FALSE(qwen2_layer.o_bias || qwen2_layer.qk_norm);

  json qwen3_config = qwen3();
  EXPECT_TRUE(parsed(qwen3_config).layers[0].qk_norm);
  EXPECT_FALSE(parsed(qwen3_config).layers[0].qkv_bias);
  qwen3_config["attention_bias"] = true;
  EXPECT_TRUE(parsed(qwen3_config).layers[0].qkv_bias && parsed(qwen3_config).layers[0].o_bias);

  EXPECT_THAT(error_with(mistral(), "attention_bias", true),
              HasSubstr("config.json: attention_bias: true is not supported in family mistral"));
  EXPECT_THAT(error_with(qwen2(), "mlp_bias", true), HasSubstr("mlp_bias"));
  EXPECT_THAT(error_with(llama(), "use_qk_norm", true), HasSubstr("use_qk_norm"));
}

TEST(ModelConfig, ReadsWindows) {
  json config = mistral();
  config["sliding_window"] = nullptr;
  EXPECT_EQ(parsed(config).layers[0].window, 0);
  config["sliding_window"] = 256;
  EXPECT_EQ(parsed(config).layers[1].window, 256);

  json qwen = qwen2();
  qwen["num_hidden_layers"] = 4;
  qwen["sliding_window"] = 128;
  qwen["max_window_layers"] = 3;
  EXPECT_EQ(parsed(qwen).layers[3].window, 0);
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(parsed(qwen).layers[2].window, 0);
  EXPECT_EQ(parsed(qwen).layers[3].window, 128);
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                         "sliding_attention"};
  EXPECT_EQ(parsed(qwen).layers[0].window, 128);
  EXPECT_EQ(parsed(qwen).layers[1].window, 0);
}

TEST(ModelConfig, RefusesWindowsThatDoNotFit) {
  EXPECT_THAT(error_with(llama(), "sliding_window", 128), HasSubstr("sliding_window"));
  json qwen = qwen2();
  qwen["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(error_of(qwen), HasSubstr("layer_types: names sliding_attention, but"));
  EXPECT_THAT(error_with(qwen, "layer_types", {"full_attention"}), HasSubstr("1 entries"));
  EXPECT_THAT(error_with(qwen, "layer_types", {"full_attention", "chunked_attention"}),
              HasSubstr("\"chunked_attention\" is not supported"));
  EXPECT_THAT(error_with(mistral(), "layer_types", {"sliding_attention", "full_attention"}),
              HasSubstr("expected sliding_attention in every layer"));
  EXPECT_THAT(error_with(mistral(), "sliding_window", 0), HasSubstr("sliding_window: 0"));
}

TEST(ModelConfig, ReadsRopeOfBothForms) {
  json old_form = llama();
  old_form["rope_theta"] = 500000;
  old_form["rope_scaling"] = {{"factor", 8},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8192},
                              {"rope_type", "llama3"}};
  json new_form = llama();
  new_form.erase("rope_theta");
  new_form["rope_parameters"] = old_form["rope_scaling"];
  new_form["rope_parameters"]["rope_theta"] = 500000.0;
  const RopeConfig rope = parsed(old_form).ropes[0];
  EXPECT_EQ(rope, parsed(new_form).ropes[0]);
  EXPECT_EQ(rope.type, RopeType::kLlama3);
  EXPECT_EQ(rope.theta, 500000.0);
  EXPECT_EQ(rope.factor, 8.0);
  EXPECT_EQ(rope.original_max_positions, 8192);

  json linear = llama();
  linear["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(parsed(linear).ropes[0].type, RopeType::kLinear);

  json yarn = qwen2();
  yarn["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(parsed(yarn).ropes[0].original_max_positions, 2048);  // max_position_embeddings
  EXPECT_NEAR(parsed(yarn).ropes[0].attention_scaling, 1.1386294361, 1e-9);
  yarn["rope_scaling"]["attn_factor"] = 0.5;  // another spelling, which transformers ignores
  EXPECT_NEAR(parsed(yarn).ropes[0].attention_scaling, 1.1386294361, 1e-9);
  yarn["rope_scaling"]["attention_factor"] = 1.5;
  EXPECT_EQ(parsed(yarn).ropes[0].attention_scaling, 1.5);
  yarn["original_max_position_embeddings"] = 512;
  EXPECT_EQ(parsed(yarn).ropes[0].original_max_positions, 512);
}

TEST(ModelConfig, RefusesRopesByName) {
  const auto with_rope = [](const json& rope) { return error_with(llama(), "rope_scaling", rope); };
  EXPECT_THAT(with_rope({{"type", "dynamic"}, {"factor", 2.0}}),
              HasSubstr("config.json: rope_scaling.type: \"dynamic\" is not supported; expected "
                        "default, linear, llama3 or yarn"));
  EXPECT_THAT(with_rope({{"rope_type", "longrope"}, {"long_factor", {1}}}),
              HasSubstr("rope_scaling.rope_type: \"longrope\""));
  EXPECT_THAT(with_rope({{"rope_type", 3}}), HasSubstr("rope_scaling.rope_type: 3"));
  EXPECT_THAT(with_rope({{"rope_type", "linear"}}), HasSubstr("rope_scaling.factor: is missing"));
  EXPECT_THAT(with_rope({{"rope_type", "linear"}, {"factor", 0.5}}), HasSubstr("factor: 0.5"));
  EXPECT_THAT(with_rope({{"rope_type", "default"}, {"mrope_section", {1, 2}}}),
              HasSubstr("\"mrope_section\": is unknown and may change the result"));
  EXPECT_THAT(with_rope({{"full_attention", json::object()}}), HasSubstr("per layer type"));
  EXPECT_THAT(with_rope({{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 4.0},
                         {"high_freq_factor", 4.0}}),
              HasSubstr("high_freq_factor: 4; expected more than low_freq_factor 4"));
  EXPECT_THAT(with_rope({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(with_rope("linear"), HasSubstr("rope_scaling: expected an object"));
  EXPECT_THAT(error_with(llama(), "rope_theta", 0), HasSubstr("rope_theta: 0"));
  EXPECT_THAT(error_with(llama(), "rope_theta", "x"), HasSubstr("rope_theta: \"x\""));
  EXPECT_THAT(error_with(llama(), "partial_rotary_factor", 0.25), HasSubstr("0.25"));
  EXPECT_THAT(error_with(llama(), "head_dim", 15), HasSubstr("head_dim: 15; expected an even"));
}

TEST(ModelConfig, RefusesUnknownArchitectures) {
  nlohmann::json without_head = llama();
  without_head["architectures"] = {"LlamaModel"};
  EXPECT_EQ(error_of(without_head), error_of(llama()));
  EXPECT_THAT(error_with(llama(), "architectures", {"Model"}), HasSubstr("\"Model\""));
  EXPECT_THAT(error_with(llama(), "architectures", {"MambaForCausalLM"}),
              HasSubstr("config.json: architectures: \"MambaForCausalLM\" is not supported; "
                        "expected one of LlamaForCausalLM, MistralForCausalLM"));
  EXPECT_THAT(error_with(llama(), "model_type", "mistral"),
              HasSubstr("config.json: model_type: \"mistral\" does not fit architecture"));
  json config = llama();
  config.erase("architectures");
  EXPECT_THAT(error_with(config, "model_type", "gpt2"), HasSubstr("model_type: \"gpt2\""));
  config.erase("model_type");
  EXPECT_THAT(error_of(config), HasSubstr("config.json: architectures: is missing"));
  EXPECT_THAT(error_with(llama(), "architectures", "LlamaForCausalLM"),
              HasSubstr("expected an array of strings"));
}

TEST(ModelConfig, RefusesSizesThatCannotBe) {
  for (const char* name : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                           "num_attention_heads", "max_position_embeddings"}) {
    json config = llama();
    config.erase(name);
    EXPECT_THAT(error_of(config), HasSubstr(std::string("config.json: ") + name + ": is missing"));
    for (const json& value : {json(0), json(-1), json(1.5), json("64"), json(true), json(1e18),
                              json(18446744073709551615ULL), json::array(), json(INT64_MIN)}) {
      EXPECT_THAT(error_with(llama(), name, value),
                  HasSubstr(std::string("config.json: ") + name + ": "))
          << value;
    }
  }
  EXPECT_THAT(error_with(llama(), "num_key_value_heads", 3),
              HasSubstr("num_key_value_heads: 3 does not divide num_attention_heads 4"));
  EXPECT_THAT(error_with(llama(), "num_key_value_heads", 8), HasSubstr("does not divide"));
  EXPECT_THAT(error_with(llama(), "head_dim", 4096), HasSubstr("head_dim: 4096"));
  EXPECT_THAT(error_with(llama(), "hidden_size", 131072), HasSubstr("makes heads of 32768"));
  EXPECT_THAT(error_with(llama(), "rms_norm_eps", -1e-5), HasSubstr("rms_norm_eps"));
}

TEST(ModelConfig, RefusesWhatChangesTheMathematics) {
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, json>>{{"quantization", {{"bits", 4}}},
                                                 {"num_local_experts", 8},
                                                 {"final_logit_softcapping", 30.0},
                                                 {"residual_multiplier", 0.22},
                                                 {"logits_scaling", 8},
                                                 {"alibi", true},
                                                 {"rope_interleaved", true},
                                                 {"is_encoder_decoder", true},
                                                 {"vision_config", json::object()},
                                                 {"per_layer_config", json::array()}}) {
    auto config = llama();
    config[field] = value;
    auto result = parse_model_config(dump_json(config));
    ASSERT_FALSE(result) << field;
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(result.error().message, HasSubstr(std::string("config.json: ") + field + ": "));
  }
  EXPECT_THAT(error_with(llama(), "hidden_act", "relu"),
              HasSubstr("hidden_act: \"relu\" is not supported; expected silu or"));
  EXPECT_THAT(error_with(llama(), "compression_config", json::object()),
              HasSubstr("compression_config: is of old versions of compressed-tensors; expected "
                        "quantization_config"));
}

TEST(ModelConfig, ReadsHowFp8IsScaled) {
  json config = llama();
  EXPECT_FALSE(parsed(config).scaling);
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_EQ(parsed(config).scaling, (CodeScaling{128, 128}));
  EXPECT_THAT(error_with(llama(), "quantization_config", {{"quant_method", "hqq"}}),
              HasSubstr("config.json: quantization_config.quant_method: \"hqq\""));
}

TEST(ModelConfig, IgnoresWhatDoesNotMatter) {
  json config = llama();
  config["some_new_field"] = {{"deep", {1, 2, 3}}};
  config["attention_dropout"] = 0.1;
  config["residual_multiplier"] = 1;
  config["logits_scaling"] = 1.0;
  config["quantization_config"] = nullptr;
  config["pretraining_tp"] = 2;
  config["rope_scaling"] = nullptr;
  config["num_experts"] = 0;
  config["transformers_version"] = "4.31.0";
  EXPECT_EQ(parsed(config), parsed(llama()));
  config["hidden_act"] = "gelu_pytorch_tanh";
  EXPECT_EQ(parsed(config).layers[0].activation, GatedActivation::kGeluTanh);
}

TEST(ModelConfig, TokenIdsOutsideTheVocabularyAreLeftOut) {
  json config = llama();
  config["bos_token_id"] = -1;
  config["eos_token_id"] = {2, 1000, 999};
  const ModelConfig model = parsed(config);
  EXPECT_FALSE(model.bos_token.has_value());
  EXPECT_EQ(model.eos_tokens, (std::vector<TokenId>{2, 999}));
  EXPECT_THAT(error_with(llama(), "eos_token_id", "</s>"),
              HasSubstr("eos_token_id: \"</s>\"; expected a token id"));
  EXPECT_THAT(error_with(llama(), "eos_token_id", json(std::vector<int>(2000, 1))),
              HasSubstr("more than 1024"));
}

TEST(ModelConfig, RefusesWhatIsNotAnObject) {
  for (const char* text : {"", "{", "[]", "null", "{\"vocab_size\": \xff}", "{} {}"}) {
    auto config = parse_model_config(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(config.error().message, HasSubstr("config.json: "));
  }
  EXPECT_THAT(parse_model_config(std::string(1 << 20, '[')).error().message,
              HasSubstr("config.json: nested deeper than 64 levels"));
}

TEST(LoadModelConfig, NamesTheDirectory) {
  const TempDirectory directory;
  auto missing = load_model_config(directory.path());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr(directory.file("config.json") + ": is missing"));
  directory.write("config.json", "{}");
  EXPECT_THAT(load_model_config(directory.path()).error().message,
              HasSubstr(directory.path() + ": config.json: architectures"));
  directory.write("config.json", dump_json(llama()));
  EXPECT_TRUE(load_model_config(directory.path()));
}

TEST(LoadModelConfig, SaysWhatIsNoCheckpointDirectory) {
  const TempDirectory directory;
  directory.write("model.bin", "PK");
  const auto message = [](const std::string& path) {
    return load_model_config(path).error().message;
  };
  EXPECT_THAT(message(directory.file("model.bin")),
              HasSubstr("model.bin: is a file; expected a checkpoint directory"));
  EXPECT_THAT(message("none.gguf"), HasSubstr("none.gguf: there is no such file"));
  EXPECT_THAT(message("Qwen/Qwen2.5-0.5B-Instruct"),
              HasSubstr("Qwen/Qwen2.5-0.5B-Instruct: there is no such directory; expected"));
}

}  // namespace
}  // namespace sluice
