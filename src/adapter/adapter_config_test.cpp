#include "adapter/adapter_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace sluice {
namespace {

constexpr const char* kQ0 = "model.layers.0.self_attn.q_proj";
constexpr const char* kQ1 = "model.layers.1.self_attn.q_proj";
constexpr const char* kUp1 = "model.layers.1.mlp.up_proj";

// As save_pretrained of PEFT 0.21 writes it, with all defaults.
constexpr const char* kSaved = R"({
  "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
  "auto_mapping": null, "base_model_name_or_path": "models/demo", "bias": "none",
  "corda_config": null, "ensure_weight_tying": false, "eva_config": null,
  "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
  "init_lora_weights": true, "kasa_config": null, "layer_replication": null,
  "layers_pattern": null, "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 16,
  "lora_bias": false, "lora_dropout": 0.05, "megatron_config": null,
  "megatron_core": "megatron.core", "modules_to_save": null, "peft_type": "LORA",
  "peft_version": "0.21.2", "qalora_group_size": 16, "r": 8, "rank_pattern": {},
  "revision": null, "target_modules": ["q_proj", "up_proj"], "target_parameters": null,
  "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
  "use_dora": false, "use_qalora": false, "use_rslora": false})";

AdapterConfig parse(const std::string& fields) {
  auto config = AdapterConfig::parse(R"({"peft_type":"LORA",)" + fields + "}");
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *std::move(config);
}

std::string refusal(const std::string& fields) {
  auto config =
      AdapterConfig::parse(R"({"peft_type":"LORA","target_modules":["q_proj"],)" + fields + "}");
  return config ? "accepted" : config.error().message;
}

std::int32_t rank_of(const AdapterConfig& config, const char* module) {
  const auto lora = config.find(module);
  EXPECT_TRUE(lora.has_value());
  return *lora ? (*lora)->rank : 0;
}

TEST(AdapterConfig, ReadsWhatPeftSaves) {
  const auto config = AdapterConfig::parse(kSaved);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(rank_of(*config, kQ0), 8);
  EXPECT_EQ(rank_of(*config, kUp1), 8);
  EXPECT_EQ(rank_of(*config, "model.layers.0.self_attn.k_proj"), 0);
  EXPECT_FLOAT_EQ((*config->find(kQ0))->scale, 2.0F);
}

TEST(AdapterConfig, ChoosesModulesAsPeftDoes) {
  // A list: the whole name, or its end after a dot.
  EXPECT_EQ(rank_of(parse(R"("target_modules":["proj"])"), kQ0), 0);
  EXPECT_EQ(rank_of(parse(R"("target_modules":["self_attn.q_proj"])"), kQ0), 8);
  // A text is a pattern for the whole name.
  EXPECT_EQ(rank_of(parse(R"("target_modules":".*q_proj")"), kQ0), 8);
  EXPECT_EQ(rank_of(parse(R"("target_modules":"q_proj")"), kQ0), 0);
  EXPECT_EQ(rank_of(parse(R"("target_modules":"(?!.*\\.1\\.).*q_proj")"), kQ0), 8);
  EXPECT_EQ(rank_of(parse(R"("target_modules":"(?!.*\\.1\\.).*q_proj")"), kQ1), 0);
  const AdapterConfig all = parse(R"("target_modules":"all-linear","exclude_modules":["up_proj"])");
  EXPECT_EQ(rank_of(all, kQ0), 8);
  EXPECT_EQ(rank_of(all, kUp1), 0);
  EXPECT_FALSE(*all.targets_outside_layers("lm_head"));
  EXPECT_TRUE(*parse(R"("target_modules":["q_proj","lm_head"])").targets_outside_layers("lm_head"));
  const AdapterConfig one = parse(
      R"("target_modules":["q_proj","model.layers.0.self_attn.q_proj"],"layers_to_transform":1)");
  EXPECT_EQ(rank_of(one, kQ1), 8);
  EXPECT_EQ(rank_of(one, kQ0), 8);  // listed by its whole name
  EXPECT_EQ(rank_of(parse(R"("target_modules":["q_proj"],"layers_to_transform":[1])"), kQ0), 0);
}

// Ranks and alphas are found apart, and the first match in the order of the file wins.
TEST(AdapterConfig, PatternsAreThoseOfPeft) {
  const AdapterConfig config = parse(
      R"("target_modules":"all-linear","r":4,"lora_alpha":8,"use_rslora":true,
         "rank_pattern":{"layers.1.self_attn.q_proj":9,"a_proj":2,".*proj":16},
         "alpha_pattern":{"^model.layers.0.self_attn.q_proj":32})");
  EXPECT_EQ(rank_of(config, kQ1), 9);
  EXPECT_EQ(rank_of(config, kUp1), 16);
  EXPECT_FLOAT_EQ((*config.find(kQ1))->scale, 8.0F / 3.0F);
  EXPECT_EQ(rank_of(config, kQ0), 16);
  EXPECT_FLOAT_EQ((*config.find(kQ0))->scale, 32.0F / 4.0F);
  // "q_proj" matches after a dot, "proj" does not.
  const AdapterConfig ends =
      parse(R"("target_modules":"all-linear","r":4,"rank_pattern":{"proj":2,"q_proj":3})");
  EXPECT_EQ(rank_of(ends, kQ0), 3);
  EXPECT_EQ(rank_of(ends, kUp1), 4);
}

TEST(AdapterConfig, RefusesByName) {
  const char* const kSetFields[] = {R"("bias":"all")",
                                    R"("lora_bias":true)",
                                    R"("modules_to_save":["lm_head"])",
                                    R"("layer_replication":[[0,2]])",
                                    R"("target_parameters":["w"])",
                                    R"("trainable_token_indices":[1])",
                                    R"("alora_invocation_tokens":[1])",
                                    R"("fan_in_fan_out":true)",
                                    R"("loftq_config":{"loftq_bits":4})",
                                    R"("init_lora_weights":"pissa")",
                                    R"("layers_pattern":"h")",
                                    R"("use_qalora":true)",
                                    R"("use_bdlora":true)",
                                    R"("arrow_config":{"top_k":2})",
                                    R"("kasa_config":{"beta":0.1})",
                                    R"("megatron_config":{"tensor_model_parallel_size":2})",
                                    R"("task_type":"SEQ_CLS")",
                                    R"("velora_config":{"x":1})"};
  for (const std::string field : kSetFields) {
    const std::string name = field.substr(1, field.find('"', 1) - 1);
    const std::string message = refusal(field);
    EXPECT_NE(message.find("adapter_config.json: "), std::string::npos) << field << message;
    EXPECT_NE(message.find(name), std::string::npos) << field << ": " << message;
  }
  EXPECT_EQ(refusal(R"("new_field":null,"other":false,"third":[])"), "accepted");
}

TEST(AdapterConfig, RefusesWrongValues) {
  for (const char* field :
       {R"("r":0)", R"("r":257)", R"("lora_alpha":"x")", R"("rank_pattern":{"q_proj":0})",
        R"("rank_pattern":{"q_proj":1.5})", R"("rank_pattern":[])", R"("alpha_pattern":{"(":1})",
        R"("alpha_pattern":{"a)|(b":1})", R"("layers_to_transform":["x"])"}) {
    EXPECT_NE(refusal(field), "accepted") << field;
  }
  // A pattern that backtracks without end is an error, not a hang.
  const auto slow = AdapterConfig::parse(R"({"peft_type":"LORA","target_modules":"(a+)+[xy]"})");
  ASSERT_TRUE(slow);
  EXPECT_FALSE(slow->find(std::string(200, 'a')).has_value());
  EXPECT_FALSE(AdapterConfig::parse(R"({"target_modules":["q_proj"]})"));
  EXPECT_FALSE(AdapterConfig::parse(R"({"peft_type":"IA3","target_modules":["q_proj"]})"));
  EXPECT_FALSE(AdapterConfig::parse("[]"));
}

}  // namespace
}  // namespace sluice
