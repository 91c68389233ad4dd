#include "adapter/sealed_adapter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "adapter/adapter_store.h"
#include "base/shared_memory.h"
#include "tests/support/adapter_files.h"
#include "tests/support/fuzz_model.h"
#include "tests/support/fuzz_seed.h"

namespace sluice {
namespace {

ModelConfig sealed_config(int layers) {
  const auto config = parse_model_config(
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,
      "hidden_size":24,"intermediate_size":40,
      "num_hidden_layers":)" +
      std::to_string(layers) +
      R"(,"num_attention_heads":4,"num_key_value_heads":2,
      "max_position_embeddings":64,"rms_norm_eps":1e-5,"hidden_act":"silu"})");
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return *config;
}

class SealedAdapterTest : public testing::Test {
 protected:
  void SetUp() override {
    write_random_adapter(directory_.path(), config_, 3, 1);
    const auto loaded = sealed_.load("poet", directory_.path());
    ASSERT_TRUE(loaded) << loaded.error().message;
    content_ = (*loaded)->content;
  }
  // The error of a reader after a change of the bytes.
  template <class Change>
  std::string error_after(const Change& change) {
    const std::size_t size = *shared_memory_size(content_->memory.get(), "test");
    std::vector<std::byte> bytes(size);
    EXPECT_EQ(pread(content_->memory.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    change(bytes);
    const auto image = decode_sealed_adapter(bytes, config_, DType::kBF16);
    return image ? "accepted" : image.error().message;
  }

  const ModelConfig config_ = sealed_config(2);
  const TempDirectory directory_;
  AdapterStore sealed_{config_, {DType::kBF16, 8}, AdapterPlace::kSealed};
  SharedContent content_;
};

TEST_F(SealedAdapterTest, BytesOfAnotherMachineAreTheSameAdapter) {
  const std::size_t size = *shared_memory_size(content_->memory.get(), "test");
  std::vector<std::byte> bytes(size);
  ASSERT_EQ(pread(content_->memory.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
  const auto copy = seal_adapter_bytes(bytes, config_, DType::kBF16);
  ASSERT_TRUE(copy) << copy.error().message;
  EXPECT_EQ(copy->image.digest, content_->image.digest);
  EXPECT_TRUE(std::ranges::equal(copy->image.bytes, content_->image.bytes));
  EXPECT_TRUE(check_sealed(copy->memory.get(), "test"));
  bytes.pop_back();
  EXPECT_FALSE(seal_adapter_bytes(bytes, config_, DType::kBF16));
  EXPECT_FALSE(seal_adapter_bytes({}, config_, DType::kBF16));
}

TEST_F(SealedAdapterTest, AReaderMapsTheImageThatAnyStoreMakes) {
  AdapterStore plain(config_, {DType::kBF16, 8});
  const auto expected = plain.load("poet", directory_.path());
  ASSERT_TRUE(expected);
  const AdapterImage& image = (*expected)->content->image;
  EXPECT_FALSE((*expected)->content->memory.valid());
  const auto read = open_sealed_adapter(content_->memory, config_, DType::kBF16);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->digest, image.digest);
  EXPECT_EQ(read->max_rank, 3);
  EXPECT_TRUE(std::ranges::equal(read->bytes, image.bytes));
  ASSERT_EQ(read->entries.size(), image.entries.size());
  for (std::size_t i = 0; i < image.entries.size(); ++i) {
    EXPECT_EQ(read->entries[i].a, image.entries[i].a);
    EXPECT_EQ(read->entries[i].b, image.entries[i].b);
    EXPECT_EQ(read->entries[i].rank, image.entries[i].rank);
    EXPECT_EQ(read->entries[i].scale, image.entries[i].scale);
  }
}

TEST_F(SealedAdapterTest, NoReaderCanWriteIt) {
  const int fd = content_->memory.get();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_TRUE(check_sealed(fd, "adapter"));
  const auto open_memory = create_shared_memory("test", 4096);
  const auto image = open_sealed_adapter(*open_memory, config_, DType::kBF16);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().message, "sealed adapter: the memory is not sealed");
}

TEST_F(SealedAdapterTest, WrongBytesAreRefusedByName) {
  using Bytes = std::vector<std::byte>;
  EXPECT_EQ(error_after([](Bytes&) {}), "accepted");
  const std::size_t count = 4 + 14 + 4 + 4 + 4 + 64;  // where the number of entries stands
  const auto put = [](Bytes& bytes, std::size_t at, std::uint32_t value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  EXPECT_EQ(error_after([&](Bytes& b) { b[5] = std::byte{0}; }),
            "sealed adapter: it does not begin as one");
  EXPECT_EQ(error_after([&](Bytes& b) { put(b, 18, 9); }),
            "sealed adapter: it has another version");
  EXPECT_EQ(error_after([&](Bytes& b) { put(b, 22, 0); }), "sealed adapter: it has another dtype");
  EXPECT_EQ(error_after([&](Bytes& b) { put(b, count, 7); }),
            "sealed adapter: it is of a model of other layers");
  EXPECT_EQ(error_after([&](Bytes& b) { put(b, count + 4, 257); }),
            "sealed adapter: a rank is too large");
  EXPECT_EQ(error_after([&](Bytes& b) { put(b, count + 8, 0x7fc00000); }),
            "sealed adapter: a scale is not finite");
  EXPECT_EQ(error_after([&](Bytes& b) { put(b, count + 4, 64); }),
            "sealed adapter: its size is not that of its ranks");
  EXPECT_EQ(error_after([&](Bytes& b) { b.pop_back(); }),
            "sealed adapter: its size is not that of its ranks");
  EXPECT_EQ(error_after([&](Bytes& b) { b.resize(count + 9); }), "sealed adapter: it is cut off");
  const auto other = open_sealed_adapter(content_->memory, sealed_config(1), DType::kBF16);
  EXPECT_FALSE(other);
}

TEST(SealedAdapterFuzzTest, ItsSeedsDecode) {
  const ModelConfig config = fuzz_model_config();
  const auto seed = [&](const std::string& name, const TempDirectory& directory) {
    AdapterStore store(config, {DType::kF32, 8}, AdapterPlace::kSealed);
    const auto loaded = store.load("seed", directory.path());
    ASSERT_TRUE(loaded) << loaded.error().message;
    const SharedContent& content = (*loaded)->content;
    std::vector<std::byte> bytes(*shared_memory_size(content->memory.get(), "test"));
    ASSERT_EQ(pread(content->memory.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
    ASSERT_EQ(bytes.size() % 2, 0U) << "the fuzz target takes it for the end of an adapter";
    EXPECT_TRUE(decode_sealed_adapter(bytes, config, DType::kF32));
    expect_fuzz_seed("sealed_adapter/" + name, bytes);
  };
  const TempDirectory all;
  write_random_adapter(all.path(), config, 2, 1);
  seed("all_modules", all);
  const TempDirectory two;
  write_adapter(two.path(), adapter_config_json(1, 4, R"(["q_proj","v_proj"])"),
                random_adapter(config, {WeightRole::kQ, WeightRole::kV}, 1, 2));
  seed("two_modules", two);
}

}  // namespace
}  // namespace sluice
