// A backbone in a GPU's memory under a fake driver: who holds its chunks, where they lie, and what
// is refused. cuda_backbone_test compares what engines compute on it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backbone/backbone.h"
#include "base/shared_memory.h"
#include "device/cuda/device_impl.h"
#include "engine/backbone_loader.h"
#include "tests/golden/computed_logits.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/cuda/fake_driver.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaSharedMemoryTest : public testing::Test {
 protected:
  static constexpr std::size_t kChunk = std::size_t{64} << 20;

  void SetUp() override {
    fake_.runs_kernels = true;
    fake_.runs_late = true;
    fake_.multiprocessors = 4;
    const GoldenCase golden = read_golden_case("tests/golden/models", "llama-gqa-tied-f32");
    write_golden_checkpoint(golden, model_.path());
    options_.max_num_seqs = 2;
    options_.token_budget = 16;
    options_.max_model_len = 64;
    options_.kv_cache_memory = 1 << 20;
  }
  void TearDown() override { EXPECT_THAT(fake_.broken_rules, testing::IsEmpty()); }

  std::unique_ptr<Device> make_device() {
    auto device = cuda::make_device(cuda::FakeDriver::api(), 0, {.deterministic = true});
    EXPECT_TRUE(device) << device.error().message;
    return std::move(*device);
  }
  // Written by a device that is gone afterwards.
  Backbone make() {
    const auto device = make_device();
    const auto written = make_backbone(model_.path(), options_, *device, pool_);
    EXPECT_TRUE(written) << written.error().message;
    return *read_only(*written);
  }
  // The message of a failed load; empty when loading works.
  std::string load_error(const Backbone& backbone, const BackboneUse& use = {}) {
    const auto device = make_device();
    StartupTimeline timeline(clock_);
    const auto loaded =
        load_engine_on_backbone(backbone, options_, *device, pool_, clock_, timeline, use);
    return loaded ? "" : loaded.error().message;
  }
  // The same backbone with a manifest that says something else.
  Backbone with_manifest(const Backbone& backbone, const BackboneManifest& manifest) {
    const std::vector<std::byte> bytes = encode_manifest(manifest);
    FileDescriptor memory = *create_shared_memory("manifest", bytes.size());
    EXPECT_TRUE(write_shared_memory(memory.get(), 0, bytes, "manifest"));
    EXPECT_TRUE(seal_shared_memory(memory.get(), "manifest"));
    return {copies(backbone), std::move(memory), 0};
  }
  static std::vector<FileDescriptor> copies(const Backbone& backbone) {
    std::vector<FileDescriptor> memory;
    for (const FileDescriptor& fd : backbone.memory) {
      memory.emplace_back(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    }
    return memory;
  }
  // Random weights of more than a chunk.
  void make_model_larger() {
    const std::string path = model_.path() + "/config.json";
    std::string config = *read_file(path, 1 << 20);
    const std::string name = "\"vocab_size\": ";
    const std::size_t place = config.find(name);
    ASSERT_NE(place, std::string::npos);
    config.insert(place + name.size(), "300");
    ASSERT_TRUE(write_file(path, config));
    options_.load_format = LoadFormat::kDummy;
  }
  std::size_t used() const { return (std::size_t{1} << 30) - fake_.free_memory; }

  cuda::FakeDriver fake_;
  TempDirectory model_;
  EngineOptions options_;
  ThreadPool pool_{1};
  SystemClock clock_;
};

TEST_F(CudaSharedMemoryTest, EnginesShareItsChunksReadOnly) {
  fake_.runs_late = false;  // a device waits for its own streams only
  const Backbone backbone = make();
  EXPECT_EQ(used(), 0U) << "the writer has given everything back";
  EXPECT_THAT(fake_.reserved, testing::IsEmpty());
  const auto manifest = open_backbone(backbone);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(manifest->chunk_bytes, kChunk);
  ASSERT_EQ(backbone.memory.size(), manifest->bytes / kChunk);

  test::EngineFixture first(backbone, options_, 1, make_device());
  const std::size_t of_one = used();
  BackboneUse elsewhere;
  elsewhere.address = BackboneAddress::kAny;
  test::EngineFixture second(backbone, options_, 1, make_device(), elsewhere);
  EXPECT_EQ(used() - of_one, of_one - manifest->bytes) << "the weights are in memory once";

  ASSERT_TRUE(fake_.mapped.contains(manifest->address)) << "the first lies where it was written";
  const std::size_t physical = fake_.physical(manifest->address);
  std::vector<std::uint64_t> places;
  for (const auto& [address, mapping] : fake_.mapped) {
    if (fake_.physical(address) != physical) continue;
    places.push_back(address);
    EXPECT_EQ(mapping.access, CU_MEM_ACCESS_FLAGS_PROT_READ);
  }
  EXPECT_EQ(places.size(), 2U);
}

TEST_F(CudaSharedMemoryTest, ItLivesWhileADescriptorDoes) {
  test::ComputedLogits expected;
  {
    test::EngineFixture alone(model_.path(), options_, 1, make_device());
    expected = test::compute_logits(alone);
  }
  Backbone backbone = make();
  {
    // The engine that was first goes; the next one finds the bytes unchanged.
    test::EngineFixture first(backbone, options_, 1, make_device());
    EXPECT_EQ(test::compute_logits(first), expected);
  }
  EXPECT_EQ(used(), 0U);
  test::EngineFixture second(backbone, options_, 1, make_device());
  backbone = {};  // a mapping holds it as well
  EXPECT_EQ(test::compute_logits(second), expected);
}

TEST_F(CudaSharedMemoryTest, ADriverWithoutReadOnlyAccessMapsItWritable) {
  const Backbone backbone = make();
  const auto manifest = open_backbone(backbone);
  fake_.refuses_read_only = true;
  test::EngineFixture engine(backbone, options_, 1, make_device());
  EXPECT_EQ(fake_.mapped.at(manifest->address).access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(test::compute_logits(engine).tokens.size(), 15U);
}

TEST_F(CudaSharedMemoryTest, AnAddressThatIsTakenIsAnError) {
  const Backbone backbone = make();
  test::EngineFixture first(backbone, options_, 1, make_device());
  const std::size_t before = used();
  EXPECT_THAT(load_error(backbone), HasSubstr("its address is not free in this process"));
  EXPECT_EQ(used(), before);
  EXPECT_EQ(test::compute_logits(first).tokens.size(), 15U) << "the other engine goes on";
}

TEST_F(CudaSharedMemoryTest, WithoutAddressSpaceItIsAnError) {
  const Backbone backbone = make();
  fake_.fails["cuMemAddressReserve"] = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_THAT(load_error(backbone), HasSubstr("its address is not free in this process"));
  BackboneUse anywhere;
  anywhere.address = BackboneAddress::kAny;
  EXPECT_THAT(load_error(backbone, anywhere), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(used(), 0U);
}

TEST_F(CudaSharedMemoryTest, WrongDescriptorsAreRefused) {
  Backbone backbone = make();
  const auto manifest = open_backbone(backbone);
  FileDescriptor chunk = std::exchange(backbone.memory[0], FileDescriptor());
  EXPECT_THAT(load_error(backbone), AllOf(HasSubstr("backbone: chunk 1 of"),
                                          HasSubstr("importing another process's memory")));
  backbone.memory[0] = *create_shared_memory("memory of the host", kChunk);
  EXPECT_THAT(load_error(backbone), HasSubstr("importing another process's memory"));
  EXPECT_EQ(used(), 0U);
  {
    // A driver with larger chunks wrote it.
    fake_.granularity = 2 * kChunk;
    const Backbone other = make();
    fake_.granularity = std::size_t{2} << 20;
    EXPECT_THAT(load_error(other), HasSubstr("it has chunks of 134217728 bytes"));
  }
  {
    const auto memory = cuda::make_exported_memory(kChunk / 2);
    backbone.memory[0] = FileDescriptor(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
    EXPECT_THAT(load_error(backbone),
                AllOf(HasSubstr("backbone: chunk 1 of"), HasSubstr("mapping memory")));
  }
  {
    // A chunk of the right size has other bytes: only the hash tells.
    backbone.memory[0] = cuda::make_exported_memory(kChunk);
    BackboneUse verified;
    verified.verify = true;
    EXPECT_THAT(load_error(backbone, verified), HasSubstr("differ from the hash"));
  }
  EXPECT_EQ(used(), 0U);
  backbone.memory[0] = std::move(chunk);
  EXPECT_EQ(load_error(backbone, {.verify = true}), "");
}

TEST_F(CudaSharedMemoryTest, ItsChunksLieInTheirOrder) {
  make_model_larger();
  Backbone backbone = make();
  ASSERT_EQ(backbone.memory.size(), 2U);
  const auto manifest = open_backbone(backbone);
  EXPECT_EQ(load_error(backbone, {.verify = true}), "");
  {
    test::EngineFixture engine(backbone, options_, 1, make_device());
    const std::size_t first = fake_.physical(manifest->address);
    const std::size_t second = fake_.physical(manifest->address + kChunk);
    EXPECT_TRUE(first != 0 && second != 0 && first != second);
  }
  std::swap(backbone.memory[0], backbone.memory[1]);
  EXPECT_THAT(load_error(backbone, {.verify = true}), HasSubstr("differ from the hash"));
  std::swap(backbone.memory[0], backbone.memory[1]);
  // The load returns the chunks that it mapped before the one that fails.
  const FileDescriptor last = std::exchange(backbone.memory[1], FileDescriptor());
  EXPECT_THAT(load_error(backbone), HasSubstr("backbone: chunk 2 of 2"));
  EXPECT_EQ(used(), 0U);
  backbone.memory.pop_back();
  EXPECT_THAT(load_error(backbone), HasSubstr("it has 1 descriptors of memory, its manifest says "
                                              "2"));
  backbone.memory.clear();
  EXPECT_THAT(load_error(backbone), HasSubstr("it has 0 descriptors of memory"));
}

TEST_F(CudaSharedMemoryTest, AManifestThatLiesIsRefused) {
  const Backbone backbone = make();
  const auto said = open_backbone(backbone);
  ASSERT_TRUE(said) << said.error().message;
  const auto error_with = [&](auto change) {
    BackboneManifest manifest = *said;
    change(manifest);
    return load_error(with_manifest(backbone, manifest), {.verify = true});
  };
  using M = BackboneManifest;
  EXPECT_EQ(error_with([](M&) {}), "");
  EXPECT_THAT(error_with([](M& m) { m.bytes += kChunk; }), HasSubstr("its manifest says"));
  EXPECT_THAT(error_with([](M& m) { m.chunk_bytes /= 2; }), HasSubstr("its manifest says"));
  EXPECT_THAT(error_with([](M& m) { m.hash.low ^= 1; }), HasSubstr("differ from the hash"));
  EXPECT_THAT(error_with([](M& m) { m.address = kChunk + 4096; }), HasSubstr("address"));
  EXPECT_THAT(error_with([](M& m) { m.numerics = "cpu"; }), HasSubstr("was written for cpu"));
  EXPECT_THAT(error_with([](M& m) { m.chunk_bytes = m.address = 0; }), HasSubstr("not sealed"));
  EXPECT_EQ(used(), 0U);
}

TEST_F(CudaSharedMemoryTest, MemoryOfTheOtherKindIsRefused) {
  const auto cpu = *make_cpu_device({&pool_, 0, {}});
  const Backbone of_host = *read_only(*make_backbone(model_.path(), options_, *cpu, pool_));
  EXPECT_THAT(load_error(of_host), HasSubstr("was written for"));
  BackboneManifest manifest = *open_backbone(of_host);
  manifest.numerics = make_device()->traits().numerics;
  EXPECT_THAT(load_error(with_manifest(of_host, manifest)),
              HasSubstr("it lies in the host's memory, which cuda:0 cannot map"));
}

TEST_F(CudaSharedMemoryTest, AGpuThatExportsNothingIsRefused) {
  fake_.exportable = 0;
  const auto device = make_device();
  const auto written = make_backbone(model_.path(), options_, *device, pool_);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(written.error().message, HasSubstr("cannot be shared with other processes here"));
  EXPECT_EQ(used(), 0U);
}

TEST_F(CudaSharedMemoryTest, AWriterThatFailsLeavesNothing) {
  fake_.fails["cuMemExportToShareableHandle"] = CUDA_ERROR_NOT_SUPPORTED;
  const auto device = make_device();
  const auto written = make_backbone(model_.path(), options_, *device, pool_);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message,
              AllOf(HasSubstr("backbone: chunk 1 of"), HasSubstr("exporting memory")));
  fake_.fails.clear();
  fake_.fails["cuMemcpyDtoHAsync"] = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_FALSE(make_backbone(model_.path(), options_, *device, pool_));
  EXPECT_EQ(used(), 0U);
  EXPECT_THAT(fake_.reserved, testing::IsEmpty());
  EXPECT_EQ(fake_.pinned, 0);
}

TEST_F(CudaSharedMemoryTest, AnAdapterInTheHostsMemoryIsRefused) {
  const Backbone backbone = make();
  EXPECT_THAT(load_error(backbone, {.lora_rank = 8}), HasSubstr("lies in the host's memory"));
}

}  // namespace
}  // namespace sluice
