#include "adapter/adapter_image.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "tensor/half.h"
#include "tests/support/adapter_files.h"

namespace sluice {
namespace {

ModelConfig config_of(int layers, int intermediate_size) {
  const auto config = parse_model_config(fmt::format(
      R"({{"architectures":["LlamaForCausalLM"],
      "model_type":"llama","vocab_size":32,"hidden_size":24,"intermediate_size":{},
      "num_hidden_layers":{},"num_attention_heads":4,"num_key_value_heads":2,
      "max_position_embeddings":64,"rms_norm_eps":1e-5,"hidden_act":"silu"}})",
      intermediate_size, layers));
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *config;
}

class AdapterImageTest : public testing::Test {
 protected:
  Result<AdapterImage> make(const AdapterFile& file, const std::string& json,
                            const AdapterFormat& format) {
    write_adapter(directory_.path(), json, file);
    ASSIGN_OR_RETURN(const AdapterTensors tensors,
                     AdapterTensors::open(directory_.path(), config_));
    const WeightedAdapter part{&tensors};
    return make_adapter_image(std::span(&part, 1), config_, format);
  }
  std::string error_of(const AdapterFile& file, const std::string& json) {
    const auto image = make(file, json, kF32);
    return image ? "accepted" : image.error().message;
  }

  static constexpr AdapterFormat kF32{DType::kF32, 8};
  const ModelConfig config_ = config_of(2, 40);
  const TempDirectory directory_;
};

float element(const AdapterImage& image, std::int64_t offset, std::size_t i, DType dtype) {
  const std::byte* at = image.bytes.data() + offset + i * size_of(dtype);
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return bf16_to_float(bits);
}

TEST_F(AdapterImageTest, HoldsEachModuleTransposedAndAligned) {
  const AdapterFile file = random_adapter(config_, {WeightRole::kK, WeightRole::kDown}, 3, 1);
  const auto image = make(file, adapter_config_json(3, 6, R"(["k_proj","down_proj"])"), kF32);
  ASSERT_TRUE(image) << image.error().message;
  ASSERT_EQ(image->entries.size(), 2 * kNumLoraModules);
  EXPECT_EQ(image->max_rank, 3);
  for (std::size_t i = 0; i < image->entries.size(); ++i) {
    const LoraEntry& entry = image->entries[i];
    const std::size_t module = i % kNumLoraModules;
    if (module != 1 && module != 6) {
      EXPECT_EQ(entry.rank, 0);
      continue;
    }
    ASSERT_EQ(entry.rank, 3);
    EXPECT_EQ(entry.scale, 2.0F);
    EXPECT_EQ(entry.a % LoraEntry::kAlignment, 0);
    EXPECT_EQ(entry.b % LoraEntry::kAlignment, 0);
    const auto layer = static_cast<std::int32_t>(i / kNumLoraModules);
    const AdapterTensor& a =
        file.at(lora_tensor_name(config_, kLoraRoles[module], layer, "lora_A"));
    const AdapterTensor& b =
        file.at(lora_tensor_name(config_, kLoraRoles[module], layer, "lora_B"));
    for (std::size_t j = 0; j < a.values.size(); ++j) {
      ASSERT_EQ(element(*image, entry.a, j, DType::kF32), a.values[j]);
    }
    const auto width = static_cast<std::size_t>(b.shape[0]);
    for (std::size_t j = 0; j < b.values.size(); ++j) {
      ASSERT_EQ(element(*image, entry.b, j % 3 * width + j / 3, DType::kF32), b.values[j]);
    }
  }
  EXPECT_LE(image->bytes.size(), kF32.slot_bytes(config_));
}

// Tensors that are read in several parts, in a type that rounds, into memory that was used before.
TEST_F(AdapterImageTest, PartsOfLargeTensorsComeToTheirPlaces) {
  const ModelConfig config = config_of(1, 30001);
  const std::vector<WeightRole> roles = {WeightRole::kGate, WeightRole::kDown};
  constexpr std::int32_t kRank = 7;
  const AdapterFile file = random_adapter(config, roles, kRank, 1);
  write_adapter(directory_.path(), adapter_config_json(kRank, 7, R"(["gate_proj","down_proj"])"),
                file);
  const auto tensors = AdapterTensors::open(directory_.path(), config);
  ASSERT_TRUE(tensors) << tensors.error().message;
  const WeightedAdapter part{&*tensors};
  int parts = 0;
  const StopCheck count = [&parts]() -> Status {
    ++parts;
    return {};
  };
  const AdapterFormat format{DType::kBF16, 8};
  {
    const std::vector<std::byte> used(format.slot_bytes(config), std::byte{0xAB});
  }
  const auto image = make_adapter_image(std::span(&part, 1), config, format, {}, count);
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_GT(parts, 12);
  for (const WeightRole role : roles) {
    const auto module =
        static_cast<std::size_t>(std::ranges::find(kLoraRoles, role) - kLoraRoles.begin());
    const LoraEntry& entry = image->entries[module];
    const AdapterTensor& a = file.at(lora_tensor_name(config, role, 0, "lora_A"));
    const AdapterTensor& b = file.at(lora_tensor_name(config, role, 0, "lora_B"));
    const auto rounded = [](float value) { return bf16_to_float(float_to_bf16(value)); };
    for (std::size_t j = 0; j < a.values.size(); ++j) {
      ASSERT_EQ(element(*image, entry.a, j, DType::kBF16), rounded(a.values[j])) << j;
    }
    const auto width = static_cast<std::size_t>(b.shape[0]);
    for (std::size_t j = 0; j < b.values.size(); ++j) {
      ASSERT_EQ(element(*image, entry.b, j % kRank * width + j / kRank, DType::kBF16),
                rounded(b.values[j]))
          << j;
    }
    // The bytes between the matrices are part of the digest, so they must be clear.
    const std::size_t end = static_cast<std::size_t>(entry.a) + a.values.size() * 2;
    for (const std::byte byte :
         image->bytes.subspan(end, static_cast<std::size_t>(entry.b) - end)) {
      EXPECT_EQ(byte, std::byte{0});
    }
  }
  EXPECT_EQ(make_adapter_image(std::span(&part, 1), config, format)->digest, image->digest);
}

TEST_F(AdapterImageTest, DigestCoversAllThatIsUsed) {
  const AdapterFile file = random_adapter(config_, {WeightRole::kQ}, 2, 1);
  const std::string q = R"(["q_proj"])";
  const auto digest = [&](const AdapterFile& from, double alpha, const AdapterFormat& format) {
    return make(from, adapter_config_json(2, alpha, q), format).value().digest;
  };
  const std::string first = digest(file, 4, kF32);
  EXPECT_EQ(first, digest(file, 4, {DType::kF32, 16}));
  EXPECT_NE(first, digest(file, 5, kF32));
  EXPECT_NE(first, digest(file, 4, {DType::kBF16, 8}));
  AdapterFile other = file;
  other.rbegin()->second.values.back() += 1.0F;
  EXPECT_NE(first, digest(other, 4, kF32));
}

TEST_F(AdapterImageTest, AMixHoldsTheRanksOfItsParts) {
  const TempDirectory second;
  write_random_adapter(directory_.path(), config_, 2, 1);
  write_random_adapter(second.path(), config_, 3, 2);
  const auto one = AdapterTensors::open(directory_.path(), config_);
  const auto two = AdapterTensors::open(second.path(), config_);
  ASSERT_TRUE(one && two);
  const WeightedAdapter parts[] = {{&*one, 0.5F}, {&*two, -2.0F}};
  const auto mix = make_adapter_image(parts, config_, kF32);
  const auto alone = make_adapter_image(std::span(parts).subspan(1), config_, kF32);
  ASSERT_TRUE(mix && alone);
  const auto width = static_cast<std::size_t>(weight_shape(config_, WeightRole::kQ, 0)[0]);
  const LoraEntry& mixed = mix->entries[0];
  EXPECT_EQ(mixed.rank, 5);
  EXPECT_EQ(mixed.scale, 1.0F);
  EXPECT_EQ(alone->entries[0].scale, -4.0F);
  for (std::size_t j = 0; j < 3 * width; ++j) {
    ASSERT_EQ(element(*mix, mixed.b, 2 * width + j, DType::kF32),
              -4.0F * element(*alone, alone->entries[0].b, j, DType::kF32));
  }
  const auto much = make_adapter_image(parts, config_, {DType::kF32, 4});
  ASSERT_FALSE(much);
  EXPECT_NE(much.error().message.find("--max-lora-rank"), std::string::npos);
}

TEST_F(AdapterImageTest, ErrorsNameTheTensor) {
  const std::string json = adapter_config_json(2, 4, R"(["q_proj","up_proj"])");
  const AdapterFile good = random_adapter(config_, {WeightRole::kQ, WeightRole::kUp}, 2, 1);
  EXPECT_EQ(error_of(good, json), "accepted");
  const std::string name = lora_tensor_name(config_, WeightRole::kUp, 1, "lora_B");

  AdapterFile file = good;
  file.erase(name);
  EXPECT_NE(error_of(file, json).find(name + "\" is missing"), std::string::npos)
      << error_of(file, json);
  file = good;
  file[name].shape = {20, 4};
  EXPECT_NE(error_of(file, json).find("has shape [20, 4]"), std::string::npos);
  file = good;
  file[name].values[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(error_of(file, json).find(name + "\" has values that are not finite"),
            std::string::npos);
  for (const auto& [left_over, reason] :
       {std::pair("base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight", "target"),
        std::pair("base_model.model.model.embed_tokens.lora_embedding_A", "embedding"),
        std::pair("base_model.model.lm_head.weight", "fully trained"),
        std::pair("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", "DoRA"),
        std::pair("base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight", "have it")}) {
    file = good;
    file[left_over] = {{1, 1}, {1.0F}};
    const std::string message = error_of(file, json);
    EXPECT_NE(message.find(left_over), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }
  EXPECT_NE(error_of(good, adapter_config_json(2, 4, R"(["lm_head"])")).find("lm_head"),
            std::string::npos);
  EXPECT_NE(error_of(good, adapter_config_json(2, 4, R"(["nothing"])")).find("target_modules"),
            std::string::npos);
}

TEST_F(AdapterImageTest, APickleIsNeverOpened) {
  directory_.write("adapter_config.json", adapter_config_json(2, 4));
  directory_.write("adapter_model.bin", "not even a pickle");
  const auto tensors = AdapterTensors::open(directory_.path(), config_);
  ASSERT_FALSE(tensors);
  EXPECT_NE(tensors.error().message.find("pickle"), std::string::npos);
}

}  // namespace
}  // namespace sluice
