#include "adapter/adapter_store.h"

#include <gtest/gtest.h>

#include "tests/support/adapter_files.h"

namespace sluice {
namespace {

ModelConfig store_config() {
  const auto config = parse_model_config(R"({"architectures":["Qwen2ForCausalLM"],
      "model_type":"qwen2","vocab_size":32,"hidden_size":16,"intermediate_size":24,
      "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,
      "max_position_embeddings":64,"rms_norm_eps":1e-5,"hidden_act":"silu"})");
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *config;
}

TEST(AdapterStore, NamesShareEqualContentAndReloadsKeepTheOld) {
  const TempDirectory one;
  const TempDirectory two;
  AdapterStore store(store_config(), {DType::kBF16, 8});
  write_random_adapter(one.path(), store.config(), 2, 1);
  write_random_adapter(two.path(), store.config(), 2, 1);
  const auto first = store.load("first", one.path());
  const auto second = store.load("second", two.path());
  ASSERT_TRUE(first && second) << first.error().message;
  EXPECT_EQ((*first)->content, (*second)->content);

  // Other content under the same name gets another index; the old content lives while it is held.
  write_random_adapter(one.path(), store.config(), 2, 7);
  const auto again = store.load("first", one.path());
  ASSERT_TRUE(again);
  EXPECT_NE((*again)->content->index, (*first)->content->index);
  EXPECT_NE((*again)->content->image.digest, (*first)->content->image.digest);
  EXPECT_EQ(store.content((*first)->content->index), (*first)->content);
  EXPECT_EQ(store.find("first")->content, (*again)->content);

  const std::int32_t index = (*again)->content->index;
  EXPECT_TRUE(store.remove("first"));
  EXPECT_FALSE(store.remove("first"));
  EXPECT_EQ(store.find("first"), nullptr);
  EXPECT_NE(store.content(index), nullptr);  // `again` holds it
  EXPECT_EQ(store.list().size(), 1U);
}

TEST(AdapterStore, GainsNeedTheirMagnitudesTheBaseModelAndRoomInSlots) {
  const TempDirectory one;
  const ModelConfig config = store_config();
  AdapterFile file = random_adapter(config, {WeightRole::kQ}, 2, 1);
  const std::string json =
      R"({"peft_type":"LORA","r":2,"use_dora":true,"target_modules":["q_proj"]})";
  write_adapter(one.path(), json, file);
  const auto error_of = [&](const AdapterFormat& format) {
    AdapterStore store(config, format);
    const auto loaded = store.load("poet", one.path());
    return loaded ? "accepted" : loaded.error().message;
  };
  EXPECT_NE(error_of({DType::kF32, 8, true}).find("q_proj.lora_magnitude_vector\" is missing"),
            std::string::npos)
      << error_of({DType::kF32, 8, true});
  file["base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"] = {
      {16}, std::vector<float>(16, 1.0F)};
  write_adapter(one.path(), json, file);
  EXPECT_NE(error_of({DType::kF32, 8, true}).find("needs base weights"), std::string::npos);
  EXPECT_NE(error_of({DType::kF32, 8, false}).find("no room"), std::string::npos);
  // Without use_dora the magnitudes are left over.
  write_adapter(one.path(), adapter_config_json(2, 4, R"(["q_proj"])"), file);
  EXPECT_NE(error_of({DType::kF32, 8, true}).find("use_dora is false"), std::string::npos);
}

TEST(AdapterStore, AFailedLoadChangesNothing) {
  const TempDirectory one;
  AdapterStore store(store_config(), {DType::kF32, 8});
  write_random_adapter(one.path(), store.config(), 2, 1);
  ASSERT_TRUE(store.load("poet", one.path()));
  const auto before = store.find("poet");
  one.write("adapter_config.json", "{}");
  const auto failed = store.load("poet", one.path());
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("adapter \"poet\""), std::string::npos)
      << failed.error().message;
  EXPECT_EQ(store.find("poet"), before);
  EXPECT_FALSE(store.load("a b", one.path()));
  EXPECT_FALSE(store.load("", one.path()));
  EXPECT_FALSE(store.load("x", one.path() + "/none"));
}

TEST(AdapterStore, AsksWhetherToGoOnAfterEachSmallPartOfALoad) {
  const TempDirectory one;
  AdapterFormat format{DType::kF32, 8};
  for (const AdapterPlace place : {AdapterPlace::kPrivate, AdapterPlace::kSealed}) {
    AdapterStore store(store_config(), format, place);
    write_random_adapter(one.path(), store.config(), 2, 1);
    std::size_t asked = 0;
    const auto stop_at = [&](std::size_t last) {
      asked = 0;
      return store.load("poet", one.path(), [&asked, last]() -> Status {
        if (asked++ < last) return {};
        return Error{ErrorCode::kCancelled, "enough"};
      });
    };
    ASSERT_TRUE(stop_at(1000));
    const std::size_t parts = asked;
    EXPECT_GE(parts, 2 + 2 * kNumLoraModules);  // the files, A and B of each module, the digest
    const auto before = store.find("poet");
    write_random_adapter(one.path(), store.config(), 2, 2);
    for (std::size_t last = 0; last < parts; ++last) {
      const auto stopped = stop_at(last);
      ASSERT_FALSE(stopped) << last;
      EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
      EXPECT_EQ(asked, last + 1);
      EXPECT_EQ(store.find("poet"), before);
    }
    EXPECT_NE((*stop_at(parts))->content, before->content);
  }
}

TEST(AdapterStore, MixesAdaptersByName) {
  const TempDirectory one;
  AdapterStore store(store_config(), {DType::kF32, 8});
  write_random_adapter(one.path(), store.config(), 2, 1);
  ASSERT_TRUE(store.load("poet", one.path()));
  const auto mix = store.load("mix", "poet:0.7+poet:0.3");
  ASSERT_TRUE(mix) << mix.error().message;
  EXPECT_EQ((*mix)->content->image.max_rank, 4);
  EXPECT_FALSE(store.load("other", "poet:1+nobody:1"));
  EXPECT_FALSE(store.load("other", "mix:1"));  // a mix of mixes
}

TEST(AdapterStore, ParsesOptionsAndMixes) {
  EXPECT_EQ(parse_mix("poet:0.7+pirate:-1").size(), 2U);
  for (const char* text : {"", "dir", "/a/b", "poet:", "poet:x", ":1", "poet:1+", "poet:inf"}) {
    EXPECT_TRUE(parse_mix(text).empty()) << text;
  }
  EXPECT_EQ(parse_adapter_option("poet=/a=b")->second, "/a=b");
  for (const char* text : {"", "poet", "=dir", "poet="}) EXPECT_FALSE(parse_adapter_option(text));
}

}  // namespace
}  // namespace sluice
