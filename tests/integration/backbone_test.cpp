// Engines on a backbone: the bits of an engine on the checkpoint, in memory that none can change.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "backbone/backbone.h"
#include "base/large_pages.h"
#include "base/shared_memory.h"
#include "tests/golden/computed_logits.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

using testing::HasSubstr;

EngineOptions small_options(std::optional<DType> dtype) {
  EngineOptions options;
  options.dtype = dtype;
  options.max_num_seqs = 2;
  options.token_budget = 16;
  options.max_model_len = 64;
  options.kv_cache_memory = 1 << 20;
  return options;
}

Backbone make_read_only(const std::string& model, const EngineOptions& options) {
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  auto written = make_backbone(model, options, **device, pool);
  EXPECT_TRUE(written) << written.error().message;
  return *read_only(*written);
}

struct BackboneCase {
  const char* model;
  std::optional<DType> dtype;
  std::string name() const {
    std::string name = std::string(model) + "_" + (dtype ? dtype_name(*dtype) : "as_stored");
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }
  friend void PrintTo(const BackboneCase& value, std::ostream* out) { *out << value.name(); }
};

class BackboneTest : public testing::TestWithParam<BackboneCase> {};

TEST_P(BackboneTest, TokensAndLogitsAreThoseOfTheCheckpoint) {
  TempDirectory model;
  write_golden_checkpoint(read_golden_case("tests/golden/models", GetParam().model), model.path());
  const EngineOptions options = small_options(GetParam().dtype);
  test::EngineFixture alone(model.path(), options, 1);
  const test::ComputedLogits expected = test::compute_logits(alone);
  ASSERT_EQ(expected.tokens.size(), 15U);
  const Backbone backbone = make_read_only(model.path(), options);
  test::EngineFixture first(backbone, options, 2);
  test::EngineFixture second(backbone, options, 1);
  EXPECT_EQ(test::compute_logits(first), expected);
  EXPECT_EQ(test::compute_logits(second), expected);
  EXPECT_EQ(first.loaded().kv_identity.model_digest, alone.loaded().kv_identity.model_digest);
}

INSTANTIATE_TEST_SUITE_P(Models, BackboneTest,
                         testing::Values(BackboneCase{"llama-gqa-tied-f32", std::nullopt},
                                         BackboneCase{"llama-gqa-tied-f32", DType::kF8E4M3},
                                         BackboneCase{"llama-gqa-tied-f32", DType::kI8},
                                         BackboneCase{"qwen3-layer-types-biases", DType::kI8},
                                         BackboneCase{"llama-gqa-tied-f32", DType::kI4},
                                         BackboneCase{"qwen2-gqa7-tied", DType::kI4},
                                         BackboneCase{"llama-fp8-block", std::nullopt},
                                         BackboneCase{"qwen2-fp8-channel", DType::kBF16},
                                         BackboneCase{"mistral-window", std::nullopt},
                                         BackboneCase{"qwen3-layer-types-biases", DType::kBF16}),
                         [](const auto& tested) { return tested.param.name(); });

class BackboneMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-tied"), model_.path());
  }

  TempDirectory model_;
};

TEST_F(BackboneMemoryTest, NoReaderCanChangeIt) {
  const Backbone backbone = make_read_only(model_.path(), small_options({}));
  const int fd = backbone.memory.front().get();
  constexpr std::size_t kPage = 4096;
  void* const page = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_NE(mprotect(page, kPage, PROT_READ | PROT_WRITE), 0);
  munmap(page, kPage);
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
  EXPECT_NE(ftruncate(fd, 0), 0);
  EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
  // A process that may open it again gets a descriptor, but the seals hold.
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const FileDescriptor again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!again.valid()) return;
  EXPECT_LT(pwrite(again.get(), "x", 1, 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  EXPECT_NE(ftruncate(again.get(), 0), 0);
  EXPECT_NE(fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
}

TEST_F(BackboneMemoryTest, EnginesMapOneMemoryReadOnly) {
  const Backbone backbone = make_read_only(model_.path(), small_options({}));
  test::EngineFixture first(backbone, small_options({}), 1);
  test::EngineFixture second(backbone, small_options({}), 1);
  struct stat status{};
  ASSERT_EQ(fstat(backbone.memory.front().get(), &status), 0);
  std::ifstream maps("/proc/self/maps");
  int mappings = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:sluice-backbone") == std::string::npos) continue;
    ++mappings;
    EXPECT_THAT(line, HasSubstr(" r--s "));
    EXPECT_THAT(line, HasSubstr(" " + std::to_string(status.st_ino) + " "));
  }
  EXPECT_EQ(mappings, 2);
}

TEST_F(BackboneMemoryTest, UnsealedOrOtherMemoryIsRefused) {
  Backbone backbone = make_read_only(model_.path(), small_options({}));
  const auto manifest = open_backbone(backbone);
  ASSERT_TRUE(manifest) << manifest.error().message;
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  EXPECT_TRUE(verify_backbone(backbone, *manifest, **device));
  BackboneManifest other = *manifest;
  other.hash.low ^= 1;
  EXPECT_THAT(verify_backbone(backbone, other, **device).error().message, HasSubstr("differ"));

  backbone.memory.front() = *create_shared_memory("unsealed", manifest->bytes);
  EXPECT_THAT(open_backbone(backbone).error().message, HasSubstr("not sealed"));
  backbone.memory.front() = *create_shared_memory("short", 4096);
  ASSERT_EQ(fcntl(backbone.memory.front().get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
  EXPECT_THAT(open_backbone(backbone).error().message, HasSubstr("its manifest says"));
}

// The CPU with hardly any free memory.
class FullDevice final : public test::LateDevice {
 public:
  FullDevice() : LateDevice(*make_cpu_device({.threads = 1})), traits_(LateDevice::traits()) {
    traits_.host_accessible = true;
  }
  const DeviceTraits& traits() const override { return traits_; }
  Result<MemoryInfo> memory_info() const override { return MemoryInfo{1 << 30, free}; }

  std::int64_t free = 4096;

 private:
  DeviceTraits traits_;
};

// The kernel would kill the process that writes them.
TEST(BackboneSize, WeightsBeyondTheFreeMemoryAreRefused) {
  const TempDirectory model;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-tied"), model.path());
  ThreadPool pool(1);
  FullDevice device;
  const auto backbone = make_backbone(model.path(), EngineOptions(), device, pool);
  ASSERT_FALSE(backbone);
  EXPECT_EQ(backbone.error().code, ErrorCode::kResourceExhausted) << backbone.error().message;
  EXPECT_THAT(backbone.error().message, HasSubstr("MiB are free"));
}

// Else a machine could be full to its last page when the functions on the backbone begin to
// compute.
TEST(BackboneSize, ABackboneLeavesMemoryForItsFunctions) {
  const TempDirectory model;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-tied"), model.path());
  ThreadPool pool(1);
  FullDevice device;
  device.free = kKeptFreeHostBytes;
  const auto backbone = make_backbone(model.path(), EngineOptions(), device, pool);
  ASSERT_FALSE(backbone);
  EXPECT_EQ(backbone.error().code, ErrorCode::kResourceExhausted) << backbone.error().message;
  EXPECT_THAT(backbone.error().message, HasSubstr("64 MiB are kept free"));
}

// Where the system grants it, the backbone lies in large pages; elsewhere it says that it does not.
TEST(BackbonePages, AreLargeWhereTheSystemGrantsThem) {
  const TempDirectory model;
  write_golden_checkpoint(read_golden_case("tests/golden/models", "qwen3-tied"), model.path());
  ThreadPool pool(1);
  const auto device = make_cpu_device({&pool, 0, {}});
  const auto backbone = make_backbone(model.path(), EngineOptions(), **device, pool);
  ASSERT_TRUE(backbone) << backbone.error().message;
  EXPECT_EQ(read_only(*backbone)->in_large_pages, backbone->in_large_pages);
  if (!grants_large_pages(shared_large_page_rule())) {
    EXPECT_EQ(backbone->in_large_pages, 0U);
    GTEST_SKIP() << "shmem_enabled is " << shared_large_page_rule() << ", not advise";
  }
  EXPECT_LE(backbone->in_large_pages,
            *shared_memory_size(backbone->memory.front().get(), "backbone"));
  if (backbone->in_large_pages == 0) GTEST_SKIP() << "the system has no large page to give";
}

}  // namespace
}  // namespace sluice
