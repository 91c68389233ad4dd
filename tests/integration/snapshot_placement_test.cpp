// Graphs of a snapshot that one process saved and another restores: with the base of the arena free
// and taken, in both modes of --restore. Answers are bit for bit those of a start without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot/snapshot_file.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/subprocess.h"

namespace sluice {
namespace {

class SnapshotPlacementTest : public testing::Test {
 protected:
  struct Said {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    friend bool operator==(const Said&, const Said&) = default;
  };

  // Another process saves.
  void SetUp() override {
    write_golden_checkpoint(read_golden_case("tests/golden/models", "llama-gqa-tied-f32"),
                            model_.path());
    const auto saved = test::run_process({SLUICE_BINARY, "snapshot", "save", model_.path(), "-o",
                                          file_, "--threads", "2", "--max-num-seqs", "2",
                                          "--token-budget", "16", "--kv-cache-memory", "2MiB"});
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
    const auto file = SnapshotFile::open(file_);
    ASSERT_TRUE(file);
    for (const SnapshotSection& section : file->table().sections) {
      if (section.kind != kGraphsSection.name) continue;
      const auto bytes = file->copy(section);
      ASSERT_TRUE(bytes);
      std::memcpy(&base_, bytes->data(), sizeof(base_));
      const auto config = std::ranges::find(section.key, "config.json", &SnapshotFact::name);
      ASSERT_NE(config, section.key.end());
      config_ = config->value;
    }
    ASSERT_NE(base_, nullptr);
    native_ = start(SnapshotMode::kOff, RestoreMode::kAutomatic);
    ASSERT_EQ(native_.tokens.size(), 4U);
  }

  Said start(SnapshotMode mode, RestoreMode restore) {
    const SnapshotChoice choice{mode, mode == SnapshotMode::kFile ? file_ : "", false, restore};
    Snapshot snapshot = *Snapshot::open(choice, {config_, "tokenizer"}, nullptr);
    EngineOptions options;
    options.max_num_seqs = 2;
    options.token_budget = 16;
    options.kv_cache_memory = 1 << 20;
    test::EngineFixture engine(model_.path(), options, 1, nullptr, &snapshot);
    Request request = test::greedy_request(1, {1, 2, 3, 4, 5}, 4);
    request.sampling.logprobs = 20;
    engine.add(std::move(request));
    test::Results results = engine.run_to_end();
    const test::ChoiceResult& choice_result = results[{1, 0}];
    Said said{choice_result.tokens, {}};
    for (const TokenLogprob& entry : choice_result.logprobs) said.logprobs.push_back(entry.logprob);
    outcomes_ = snapshot.outcomes();
    std::erase_if(outcomes_, [](const auto& one) { return one.kind != kGraphsSection.name; });
    return said;
  }

  // One start with the file: the right answer, and graphs that were placed so.
  void expect_placed(RestoreMode asked, RestoreMode placed) {
    EXPECT_EQ(start(SnapshotMode::kFile, asked), native_);
    ASSERT_EQ(outcomes_.size(), 1U);
    EXPECT_TRUE(outcomes_[0].restored) << outcomes_[0].reason;
    EXPECT_EQ(outcomes_[0].mode, placed);
  }

  TempDirectory model_;
  TempDirectory folder_;
  std::string file_ = folder_.file("f.snapshot");
  std::byte* base_ = nullptr;
  std::string config_;
  Said native_;
  std::vector<SectionOutcome> outcomes_;
};

TEST_F(SnapshotPlacementTest, AFreeBaseIsTakenAgainUnlessRelocationIsForced) {
  expect_placed(RestoreMode::kAutomatic, RestoreMode::kLayout);
  expect_placed(RestoreMode::kLayout, RestoreMode::kLayout);
  expect_placed(RestoreMode::kRelocate, RestoreMode::kRelocate);
}

TEST_F(SnapshotPlacementTest, ATakenBaseMeansRelocationOrNativeGraphs) {
  constexpr std::size_t kPage = 4096;
  ASSERT_EQ(mmap(base_, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            base_)
      << "the test needs the base for itself";
  expect_placed(RestoreMode::kAutomatic, RestoreMode::kRelocate);
  expect_placed(RestoreMode::kRelocate, RestoreMode::kRelocate);

  testing::internal::CaptureStderr();
  EXPECT_EQ(start(SnapshotMode::kFile, RestoreMode::kLayout), native_);
  const std::string told = testing::internal::GetCapturedStderr();
  munmap(base_, kPage);
  constexpr std::string_view kOfSnapshots = "warning snapshot";
  ASSERT_NE(told.find(kOfSnapshots), std::string::npos) << told;
  ASSERT_EQ(told.find(kOfSnapshots), told.rfind(kOfSnapshots)) << told;
  EXPECT_THAT(told, testing::AllOf(testing::HasSubstr("snapshot " + file_),
                                   testing::HasSubstr("--restore layout"),
                                   testing::HasSubstr("the range is taken; made natively")));
  EXPECT_FALSE(outcomes_.at(0).restored);
}

}  // namespace
}  // namespace sluice
