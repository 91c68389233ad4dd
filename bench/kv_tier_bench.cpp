// The disk tier: how long a start takes to index a folder with 100,000 blocks, and how fast blocks
// are saved and loaded, with and without encryption and by how many threads. The folder is made
// below the current one. And the CPU time that the tier's thread takes for a small block in lent
// memory.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "base/work_pace.h"
#include "offload/disk_tier.h"
#include "offload/lent_tier.h"

namespace sluice {
namespace {

class Folder {
 public:
  Folder() { std::filesystem::remove_all(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::absolute("kv_tier_bench.folder").string();
};

DiskTier::Options options(const Folder& folder, std::uint64_t block_bytes, std::int64_t blocks,
                          Sealing sealing) {
  DiskTier::Options made;
  made.folder = folder.path();
  made.block_bytes = block_bytes;
  made.max_bytes = static_cast<std::uint64_t>(blocks) *
                   (SegmentShape{block_bytes, 1}.page_bytes() + kRecordBytes);
  made.identity = "bench";
  made.sealing = sealing;
  made.free_bytes = 0;
  return made;
}

std::unique_ptr<DiskTier> open(const DiskTier::Options& options, const Clock& clock) {
  auto tier = DiskTier::open(options, clock);
  if (!tier) std::abort();
  return *std::move(tier);
}

// Until `count` moves have ended; false if one failed.
bool await(KvTier& tier, std::size_t count) {
  std::vector<TierMove> ended;
  while (ended.size() < count) {
    tier.wait(std::chrono::seconds(1));
    tier.poll(ended);
  }
  for (const TierMove& move : ended) {
    if (!move.status) return false;
  }
  return true;
}

TierPage page_of(std::int64_t number) {
  return {static_cast<std::int32_t>(number), 0, {static_cast<std::uint64_t>(number) + 1, 7}, {}};
}

// Small blocks, because a start reads records only.
void open_folder(benchmark::State& state) {
  const std::int64_t blocks = state.range(0);
  const auto sealing = static_cast<Sealing>(state.range(1));
  const SystemClock clock;
  const Folder folder;
  const DiskTier::Options made = options(folder, 1024, blocks, sealing);
  const std::vector<std::byte> block(made.block_bytes, std::byte{1});
  {
    const auto tier = open(made, clock);
    for (std::int64_t i = 0; i < blocks; ++i) tier->save(1, page_of(i), block);
    if (!await(*tier, static_cast<std::size_t>(blocks))) state.SkipWithError("a save failed");
  }
  std::size_t found = 0;
  for (auto _ : state) {
    const auto tier = open(made, clock);
    found = tier->take_stored().size();
  }
  state.counters["blocks"] = static_cast<double>(found);
}
BENCHMARK(open_folder)
    ->ArgsProduct({{100'000}, {0, 1}})
    ->ArgNames({"blocks", "encrypted"})
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);

void move_blocks(benchmark::State& state) {
  constexpr std::int64_t kBlocks = 256;
  constexpr std::uint64_t kBlockBytes = std::uint64_t{512} << 10;
  const bool loads = state.range(0) != 0;
  const auto sealing = static_cast<Sealing>(state.range(1));
  const SystemClock clock;
  const Folder folder;
  const auto tier = open(options(folder, kBlockBytes, kBlocks, sealing), clock);
  std::vector<std::vector<std::byte>> blocks(kBlocks, std::vector<std::byte>(kBlockBytes));
  const auto save_all = [&] {
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      tier->save(1, page_of(i), blocks[static_cast<std::size_t>(i)]);
    }
    if (!await(*tier, kBlocks)) state.SkipWithError("a save failed");
  };
  save_all();
  for (auto _ : state) {
    if (!loads) {
      save_all();
      continue;
    }
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      tier->load(2, page_of(i), blocks[static_cast<std::size_t>(i)]);
    }
    if (!await(*tier, kBlocks)) state.SkipWithError("a load failed");
  }
  state.SetBytesProcessed(state.iterations() * kBlocks * static_cast<std::int64_t>(kBlockBytes));
}
BENCHMARK(move_blocks)
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->ArgNames({"loads", "encrypted"})
    ->Iterations(5)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// The KV of a chat of 4,000 tokens of the 1B shape: 250 blocks of 512 KiB, past the page cache.
// Each thread has one read under way, so threads are the queue's depth as well.
void load_cold_chat(benchmark::State& state) {
  constexpr std::int64_t kBlocks = 250;
  constexpr std::uint64_t kBlockBytes = std::uint64_t{512} << 10;
  const SystemClock clock;
  const Folder folder;
  DiskTier::Options made =
      options(folder, kBlockBytes, kBlocks, static_cast<Sealing>(state.range(1)));
  made.threads = static_cast<int>(state.range(0));
  const auto tier = open(made, clock);
  std::vector<std::vector<std::byte>> blocks(kBlocks, std::vector<std::byte>(kBlockBytes));
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    tier->save(1, page_of(i), blocks[static_cast<std::size_t>(i)]);
  }
  if (!await(*tier, kBlocks)) state.SkipWithError("a save failed");
  if (!tier->flush(std::chrono::minutes(1))) state.SkipWithError("the saves were not flushed");
  for (auto _ : state) {
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      tier->load(2, page_of(i), blocks[static_cast<std::size_t>(i)]);
    }
    if (!await(*tier, kBlocks)) state.SkipWithError("a load failed");
  }
  state.SetBytesProcessed(state.iterations() * kBlocks * static_cast<std::int64_t>(kBlockBytes));
}
BENCHMARK(load_cold_chat)
    ->ArgsProduct({{1, 2, 4, 8}, {0, 1}})
    ->ArgNames({"threads", "encrypted"})
    ->Iterations(3)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

Duration cpu_of_process() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto time_of = [](const timeval& value) {
    return std::chrono::seconds(value.tv_sec) + std::chrono::microseconds(value.tv_usec);
  };
  return time_of(use.ru_utime) + time_of(use.ru_stime);
}

// Blocks of 16 KiB, in groups of 16 as a step starts them, into memory that has its pages already
// (`fresh` 0) or takes them from the system. The thread sleeps before each save that rests.
void save_to_lent_memory(benchmark::State& state) {
  constexpr std::int64_t kBlocks = 4096;
  constexpr std::int64_t kGroup = 16;
  constexpr std::uint64_t kBlockBytes = std::uint64_t{16} << 10;
  constexpr std::int64_t kBytes = kBlocks * static_cast<std::int64_t>(kBlockBytes);
  const int rests = static_cast<int>(state.range(0));
  const bool fresh = state.range(1) != 0;
  // More than the caches hold: a block that is saved was written some steps ago.
  std::vector<std::byte> source(static_cast<std::size_t>(kBytes), std::byte{1});
  const ThreadCpuClock own;
  Duration spent{0};
  std::int64_t saved = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto file = create_shared_memory("lent", static_cast<std::size_t>(kBytes));
    if (!file) std::abort();
    auto memory = std::make_shared<LentMemory>(kBytes);  // shared with the tier
    memory->set("a", lent_file(*std::move(file)), kBytes);
    const auto tier = *LentTier::open(memory, kBlockBytes, rests);
    const auto save_all = [&] {
      for (std::int64_t i = 0; i < kBlocks; ++i) {
        tier->save(1, page_of(i), {source.data() + i * kBlockBytes, kBlockBytes});
        if (i % kGroup == kGroup - 1 && !await(*tier, kGroup)) state.SkipWithError("a save failed");
      }
    };
    if (!fresh) save_all();
    state.ResumeTiming();
    const Duration before = cpu_of_process() - (own.now() - TimePoint{});
    save_all();
    spent += cpu_of_process() - (own.now() - TimePoint{}) - before;
    saved += kBlocks;
  }
  state.counters["cpu_us_per_block"] =
      std::chrono::duration<double, std::micro>(spent).count() / static_cast<double>(saved);
}
BENCHMARK(save_to_lent_memory)
    ->ArgsProduct({{0, 8}, {0, 1}})
    ->ArgNames({"rests", "fresh"})
    ->Iterations(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace sluice
