#include "model/generation_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  auto result = parse_generation_defaults(text, 1000);
  return result ? "no error" : result.error().message;
}

TEST(GenerationDefaults, ReadsEveryField) {
  const auto result = parse_generation_defaults(
      R"({"bos_token_id":5,"eos_token_id":[7,8],"do_sample":true,"temperature":0.6,"top_p":0.9,
          "top_k":20,"min_p":0.1,"repetition_penalty":1.05,"max_new_tokens":2048,
          "transformers_version":"4.51.0"})",
      1000);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->bos_token, 5);
  EXPECT_EQ(result->eos_tokens, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(result->do_sample, true);
  EXPECT_EQ(result->temperature, 0.6);
  EXPECT_EQ(result->top_p, 0.9);
  EXPECT_EQ(result->top_k, 20);
  EXPECT_EQ(result->min_p, 0.1);
  EXPECT_EQ(result->repetition_penalty, 1.05);
  EXPECT_EQ(result->max_new_tokens, 2048);
}

TEST(GenerationDefaults, EmptyMeansEmpty) {
  const auto result = parse_generation_defaults("{}", 1000);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->bos_token || result->do_sample || result->temperature || result->top_p ||
               result->top_k || result->min_p || result->repetition_penalty ||
               result->max_new_tokens);
  EXPECT_TRUE(result->eos_tokens.empty());
}

TEST(GenerationDefaults, SpellingsOfOff) {
  const auto result = parse_generation_defaults(
      R"({"top_p":0,"top_k":-1,"temperature":null,"num_beams":1,"typical_p":1.0})", 1000);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->top_p.has_value());
  EXPECT_EQ(result->top_k, 0);
  EXPECT_FALSE(result->temperature.has_value());
}

TEST(GenerationDefaults, RefusesWrongValuesByName) {
  EXPECT_THAT(error_of(R"({"temperature":-1})"),
              HasSubstr("generation_config.json: temperature: -1; expected a number from 0"));
  EXPECT_THAT(error_of(R"({"top_p":1.5})"), HasSubstr("generation_config.json: top_p: 1.5"));
  EXPECT_THAT(error_of(R"({"top_k":2.5})"), HasSubstr("top_k: 2.5"));
  EXPECT_THAT(error_of(R"({"do_sample":"yes"})"), HasSubstr("do_sample: \"yes\""));
  EXPECT_THAT(error_of(R"({"repetition_penalty":0})"), HasSubstr("repetition_penalty: 0"));
  EXPECT_THAT(error_of(R"({"max_new_tokens":0})"), HasSubstr("max_new_tokens: 0"));
  EXPECT_THAT(error_of(R"({"eos_token_id":{}})"), HasSubstr("eos_token_id"));
  EXPECT_THAT(error_of("[]"), HasSubstr("generation_config.json: expected an object"));
}

TEST(LoadGenerationDefaults, TheFileMayBeAbsentButNotBroken) {
  const TempDirectory directory;
  EXPECT_TRUE(load_generation_defaults(directory.path(), 10));
  directory.write("generation_config.json", "{");
  auto broken = load_generation_defaults(directory.path(), 10);
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message,
              HasSubstr(directory.path() + ": generation_config.json: not valid JSON"));
}

std::string warnings_of(std::string_view text) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(parse_generation_defaults(text, 1000));
  return testing::internal::GetCapturedStderr();
}

TEST(GenerationDefaults, DroppedFieldsAreNamedInOneWarning) {
  const std::string warnings = warnings_of(
      R"({"max_length":4096,"num_beams":4,"suppress_tokens":[5],"stop_strings":"x","odd":{"a":1},
          "temperature":0.5,"early_stopping":true})");
  EXPECT_THAT(warnings,
              HasSubstr(R"(these fields are not supported and have no effect: "early_stopping", )"
                        R"("max_length", "num_beams", "odd", "stop_strings", "suppress_tokens")"));
}

TEST(GenerationDefaults, FieldsWithoutEffectAnywhereAreNotNamed) {
  EXPECT_EQ(warnings_of(
                R"({"_from_model_config":true,"transformers_version":"5.0","pad_token_id":0,
                    "use_cache":true,"output_attentions":false,"max_length":20,"num_beams":1,
                    "typical_p":1.0,"suppress_tokens":[],"bad_words_ids":null,
                    "renormalize_logits":false,"guidance_scale":1})"),
            "");
}

}  // namespace
}  // namespace sluice
