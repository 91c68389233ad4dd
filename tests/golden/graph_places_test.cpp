// Graphs hold no address that has no name: every pointer of every graph of a model lies in a named
// buffer of the arena. So a graph that was captured at one base runs at another, and gives the same
// bits.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/op_fields.h"
#include "device/op_image.h"
#include "device/rebase.h"
#include "engine/engine_loader.h"
#include "engine/model_runner.h"
#include "tests/golden/golden_case.h"
#include "tests/parity/support.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/decoder_harness.h"
#include "tests/support/late_device.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

constexpr const char* kDirectory = "tests/golden/models";

// A model that was loaded twice on one device, into two arenas.
class TwoArenas {
 public:
  TwoArenas(const std::string& directory, std::unique_ptr<Device> device)
      : device_(std::move(device)) {
    EngineOptions options;
    options.token_budget = 20;
    options.max_num_seqs = 4;
    options.block_size = 4;
    options.kv_cache_memory = std::int64_t{1} << 20;
    for (LoadedExecutor& loaded : loaded_) {
      StartupTimeline timeline(clock_);
      auto result = load_executor(directory, options, *device_, pool_, timeline);
      EXPECT_TRUE(result) << result.error().message;
      if (result) loaded = *std::move(result);
    }
  }
  const ModelRunner& runner(std::size_t index) const {
    return dynamic_cast<const ModelRunner&>(*loaded_[index].executor);
  }

 private:
  SystemClock clock_;
  ThreadPool pool_{1};
  std::unique_ptr<Device> device_;
  LoadedExecutor loaded_[2];
};

// Loading captured a graph for each capacity; each, moved, is the graph of the other arena.
void expect_graphs_move(const TwoArenas& arenas) {
  const ModelRunner& first = arenas.runner(0);
  const ModelRunner& second = arenas.runner(1);
  ASSERT_NE(first.arena().region_base(RegionKind::kWeights),
            second.arena().region_base(RegionKind::kWeights));
  const auto capacities = first.graphs().capacities();
  EXPECT_EQ(first.graphs().num_captured(), static_cast<std::int32_t>(capacities.size()));
  for (const std::int32_t tokens : capacities) {
    SCOPED_TRACE("capacity " + std::to_string(tokens));
    const Graph* from = first.graphs().graph(tokens, ForwardVariant::kPlain);
    const Graph* to = second.graphs().graph(tokens, ForwardVariant::kPlain);
    ASSERT_TRUE(from != nullptr && to != nullptr);
    EXPECT_GT(from->ops().size(), 10U);
    const auto moved = rebase(from->ops(), first.arena(), second.arena());
    ASSERT_TRUE(moved) << moved.error().message;
    EXPECT_EQ(first_difference(*moved, to->ops()), "");
    EXPECT_FALSE(*moved == from->ops());
  }
}

class GraphPlacesTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = read_golden_case(kDirectory, GetParam());
    write_golden_checkpoint(golden_, checkpoint_.path());
  }
  TempDirectory checkpoint_;
  GoldenCase golden_;
};

TEST_P(GraphPlacesTest, EveryPointerOfEveryGraphHasAName) {
  expect_graphs_move(TwoArenas(checkpoint_.path(), *make_cpu_device({.threads = 1})));
}

// With sampling in the graph.
TEST_P(GraphPlacesTest, EveryPointerHasANameOnAnAsynchronousDevice) {
  auto device = std::make_unique<test::LateDevice>(*make_cpu_device({.threads = 1}));
  expect_graphs_move(TwoArenas(checkpoint_.path(), std::move(device)));
}

// As a snapshot stores them: small, and equal at the other base.
TEST_P(GraphPlacesTest, StoredGraphsAreTheGraphsOfAnotherArena) {
  const TwoArenas arenas(checkpoint_.path(), *make_cpu_device({.threads = 1}));
  const auto lists = arenas.runner(0).graphs().lists(ForwardVariant::kPlain);
  const auto image = encode_op_lists(lists, arenas.runner(0).arena());
  ASSERT_TRUE(image) << image.error().message;
  const auto restored = decode_op_lists(*image, arenas.runner(1).arena());
  ASSERT_TRUE(restored) << restored.error().message;
  const auto expected = arenas.runner(1).graphs().lists(ForwardVariant::kPlain);
  ASSERT_EQ(restored->size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(first_difference((*restored)[i], *expected[i]), "");
  }
  std::size_t ops = 0;
  for (const OpList* list : lists) ops += list->size();
  EXPECT_LT(image->size(), 2048 + 40 * ops);
}

// Every word of every pointer and extent, one by one.
TEST_P(GraphPlacesTest, AStoredGraphWithAChangedWordIsRefusedOrDiffers) {
  const TwoArenas arenas(checkpoint_.path(), *make_cpu_device({.threads = 1}));
  const ModelRunner& runner = arenas.runner(0);
  const OpList& list = *runner.graphs().lists(ForwardVariant::kPlain).back();
  const std::size_t step = kSanitized ? 7 : 1;
  int changed = 0;
  for (std::size_t i = 0; i < list.size(); i += step) {
    for (const OpField& field : op_fields(list[i].op)) {
      OpList other = list;
      other.params(i)[field.offset] ^= std::byte{4};
      EXPECT_NE(first_difference(other, list), "") << i << " " << field.name;
      const OpList* const one[] = {&other};
      const auto image = encode_op_lists(one, runner.arena());
      if (!image) continue;
      const auto restored = decode_op_lists(*image, runner.arena());
      if (!restored) continue;
      EXPECT_NE(first_difference(restored->front(), list), "") << i << " " << field.name;
      ++changed;
    }
  }
  EXPECT_GT(changed, 0);
}

TEST_P(GraphPlacesTest, AGraphCapturedAtOneBaseGivesTheSameLogitsAtAnother) {
  test::HarnessOptions options;
  options.graphs = GraphMode::kReplay;
  options.max_tokens = 16;
  test::DecoderHarness here(checkpoint_.path(), options);
  test::DecoderHarness there(checkpoint_.path(), options);
  std::vector<TokenId> prompt(golden_.prompts[0].ids.begin(), golden_.prompts[0].ids.end());
  if (prompt.size() > 16) prompt.resize(16);
  const std::vector<test::HarnessRow> rows = {
      {0, 0, prompt, {0, static_cast<std::int32_t>(prompt.size()) - 1}}};
  const auto logits = here.run(rows);
  const Graph* captured =
      here.graphs().graph(static_cast<std::int32_t>(prompt.size()), ForwardVariant::kPlain);
  ASSERT_NE(captured, nullptr);
  auto moved = rebase(captured->ops(), here.arena(), there.arena());
  ASSERT_TRUE(moved) << moved.error().message;
  const auto graph = there.device().make_graph(*std::move(moved));
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(there.run(rows, graph->get()), logits);
  EXPECT_EQ(there.graphs().num_captured(), 0) << "only the moved graph ran";
}

INSTANTIATE_TEST_SUITE_P(Models, GraphPlacesTest, testing::ValuesIn(golden_case_names(kDirectory)),
                         [](const auto& model) {
                           std::string name = model.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

// On CUDA, with its kernels run on the host where there is no GPU.
TEST(GraphPlacesOnCuda, EveryPointerOfEveryGraphHasAName) {
  TempDirectory checkpoint;
  write_golden_checkpoint(read_golden_case(kDirectory, "mistral-window"), checkpoint.path());
  int devices = 0;
  for (const parity::DeviceCase& device : parity::available_devices()) {
    if (!device.name.starts_with("cuda")) continue;
    auto made = device.make(1, false);
    if (!made) continue;
    SCOPED_TRACE(device.name);
    ++devices;
    expect_graphs_move(TwoArenas(checkpoint.path(), *std::move(made)));
  }
  if (devices == 0) GTEST_SKIP() << "this build has no CUDA";
}

}  // namespace
}  // namespace sluice
