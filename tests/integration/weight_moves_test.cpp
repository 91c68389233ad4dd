// The model runner moves weights into large pages after steps and while there are none.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>

#include "base/large_pages.h"
#include "base/shared_memory.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_loader.h"
#include "engine/model_runner.h"
#include "engine/weight_pages.h"
#include "tests/golden/golden_case.h"
#include "tests/support/aligned_mapping.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/ticking_clock.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;

constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);

// A runner that moves 16 pages. They are not those of its weights, which are too few.
class WeightMovesTest : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 16 * kLarge;

  void SetUp() override {
    const std::string rule = own_large_page_rule();
    if (rule.empty() || rule == "never") GTEST_SKIP() << "large pages: '" << rule << "'";
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-mha"),
                            checkpoint_.path());
    auto device = make_cpu_device({&pool_, 0, {}});
    ASSERT_TRUE(device);
    device_ = std::move(*device);
    StartupTimeline timeline(system_clock_);
    EngineOptions options;
    options.kv_cache_memory = std::int64_t{1} << 20;
    auto loaded = load_executor(checkpoint_.path(), options, *device_, pool_, timeline);
    ASSERT_TRUE(loaded) << loaded.error().message;
    loaded_ = std::move(*loaded);
    ASSERT_TRUE(loaded_.stream->finish());

    file_ = *create_shared_memory("test", kBytes);
    std::byte* const map = test::map_aligned(file_, kBytes);
    ASSERT_NE(map, MAP_FAILED);
    ASSERT_EQ(::mmap(map, kBytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file_.get(), 0), map);
    auto pages = std::make_unique<WeightPages>(
        WeightPages::Options{.mappings = {{map, kBytes}},
                             .others = 0,
                             .free_bytes = [] { return std::int64_t{1} << 40; },
                             .least_bytes = kBytes},
        pool_, clock_);
    pages_ = pages.get();
    runner().use_large_pages(std::move(pages));
  }
  ModelRunner& runner() { return static_cast<ModelRunner&>(*loaded_.executor); }
  void check_at(Duration time) { ASSERT_TRUE(runner().check({time})); }
  std::size_t moved() const { return pages_->moved() / kLarge; }
  void run_step() {
    BatchPlan plan;
    PlanRow row;
    row.query_len = 4;
    plan.rows = {row};
    plan.token_ids = {1, 2, 3, 4};
    plan.table_updates = {{0, 0, 0, 1, 0}};
    plan.block_ids = {1};
    ASSERT_TRUE(runner().submit(plan));
    StepResult result;
    ASSERT_TRUE(runner().collect(result));
  }

  TempDirectory checkpoint_;
  SystemClock system_clock_;
  // Each page takes a millisecond, because a move reads the clock once after each.
  test::TickingClock clock_{milliseconds(1)};
  ThreadPool pool_{1};
  FileDescriptor file_;
  std::unique_ptr<Device> device_;
  LoadedExecutor loaded_;
  WeightPages* pages_ = nullptr;  // the runner's
};

TEST_F(WeightMovesTest, AMoveFollowsEachStepAndTheTimerWhileIdle) {
  check_at(milliseconds(100));  // the first one only looks whether weights can move
  EXPECT_EQ(moved(), 0U);
  EXPECT_EQ(runner().next_check(), TimePoint{milliseconds(105)});
  check_at(milliseconds(105));
  EXPECT_EQ(moved(), 4U);
  check_at(milliseconds(109));
  EXPECT_EQ(moved(), 4U) << "a request may have come";
  EXPECT_EQ(runner().next_check(), TimePoint{milliseconds(110)});
  run_step();
  clock_.run_step(milliseconds(49));
  check_at(milliseconds(110));
  EXPECT_EQ(moved(), 6U) << "2 ms of 50, and not 4 ms";
  check_at(milliseconds(111));
  EXPECT_EQ(moved(), 6U);
  for (int i = 0; i < 4; ++i) check_at(milliseconds(115 + 5 * i));
  EXPECT_EQ(moved(), 16U);
  EXPECT_TRUE(pages_->finished());
  EXPECT_GT(runner().next_check(), TimePoint{milliseconds(200)});
}

}  // namespace
}  // namespace sluice
