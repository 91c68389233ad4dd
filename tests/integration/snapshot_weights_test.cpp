// Converted weights in snapshots: a start that maps or copies them computes the bits of a start
// that converts them, and a file that is damaged, truncated or of another model costs one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "snapshot/snapshot_file.h"
#include "tests/golden/golden_case.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/late_device.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kModels = "tests/golden/models";

enum class Where { kMapped, kCopied };

// Tokens and log-probabilities of one request.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  friend bool operator==(const Answer&, const Answer&) = default;
};

class SnapshotWeightsTest : public testing::Test {
 protected:
  void write_model(const std::string& name) {
    write_golden_checkpoint(read_golden_case(kModels, name), model_.path());
  }

  static Snapshot open(SnapshotChoice choice, const std::string& weights = "digest") {
    return *Snapshot::open(choice, {"config", "tokenizer", weights}, nullptr);
  }
  Snapshot open_file(const std::string& weights = "digest") const {
    return open({SnapshotMode::kFile, file_}, weights);
  }

  static EngineOptions options(DType dtype) {
    EngineOptions options;
    options.dtype = dtype;
    options.max_num_seqs = 2;
    options.token_budget = 16;
    options.kv_cache_memory = 1 << 20;
    return options;
  }

  std::unique_ptr<test::EngineFixture> start(DType dtype, Snapshot* snapshot, Where where) const {
    std::unique_ptr<Device> late;
    if (where == Where::kCopied) {
      late = std::make_unique<test::LateDevice>(*make_cpu_device({&pool_, 0, {}}));
    }
    return std::make_unique<test::EngineFixture>(model_.path(), options(dtype), 2, std::move(late),
                                                 snapshot);
  }

  static Answer ask(test::EngineFixture& engine) {
    Request request = test::greedy_request(1, {1, 2, 3, 4, 5}, 4);
    request.sampling.logprobs = 2;
    engine.add(std::move(request));
    test::Results results = engine.run_to_end();
    const test::ChoiceResult& choice = results[{1, 0}];
    Answer answer{choice.tokens, {}};
    for (const TokenLogprob& entry : choice.logprobs) answer.logprobs.push_back(entry.logprob);
    return answer;
  }

  // Returns the answer of the start that converts.
  Answer save(DType dtype, Where where) const {
    Snapshot snapshot = open({SnapshotMode::kCollect, {}, true});
    const auto engine = start(dtype, &snapshot, where);
    Answer answer = ask(*engine);
    snapshot.collect();
    const Status written = snapshot.write(file_, OldSections::kDrop, {});
    EXPECT_TRUE(written) << written.error().message;
    return answer;
  }

  // A step does not wait for an embedding that is read row by row.
  static void finish(test::EngineFixture& engine) {
    WeightStream* const stream = engine.loaded().stream;
    EXPECT_TRUE(stream == nullptr || stream->finish());
  }

  // The outcome of the weights section.
  static const SectionOutcome& outcome(const Snapshot& snapshot) {
    const SectionOutcome* last = nullptr;
    for (const SectionOutcome& outcome : snapshot.outcomes()) {
      if (outcome.kind == kWeightsSection.name) last = &outcome;
    }
    static const SectionOutcome none{"none", false, "none", {}};
    return last != nullptr ? *last : none;
  }

  mutable ThreadPool pool_{1};
  TempDirectory model_;
  TempDirectory folder_;
  std::string file_ = folder_.file("f.snapshot");
};

TEST_F(SnapshotWeightsTest, EveryGoldenModelAnswersTheSameBitForBit) {
  for (const std::string& name : golden_case_names(kModels)) {
    write_model(name);
    for (const DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF32}) {
      for (const Where where : {Where::kMapped, Where::kCopied}) {
        const Answer native = save(dtype, where);
        Snapshot snapshot = open_file();
        if (!snapshot.has_kind(kWeightsSection)) continue;  // nothing is converted
        const auto engine = start(dtype, &snapshot, where);
        EXPECT_EQ(ask(*engine), native) << name << " " << dtype_name(dtype);
        finish(*engine);
        EXPECT_TRUE(outcome(snapshot).restored) << name << ": " << outcome(snapshot).reason;
      }
    }
  }
}

TEST_F(SnapshotWeightsTest, QuantizedMatricesAnswerTheSameBitForBit) {
  write_model("qwen2-window");
  for (const auto& [dtype, where] :
       {std::pair(DType::kI8, Where::kMapped), std::pair(DType::kI4, Where::kMapped),
        std::pair(DType::kI4, Where::kCopied)}) {
    const Answer native = save(dtype, where);
    Snapshot snapshot = open_file();
    const auto engine = start(dtype, &snapshot, where);
    EXPECT_EQ(ask(*engine), native);
    finish(*engine);
    EXPECT_TRUE(outcome(snapshot).restored) << outcome(snapshot).reason;
  }
}

TEST_F(SnapshotWeightsTest, NothingConvertedNeedsNoSection) {
  write_model("llama-gqa-tied-f32");
  save(DType::kF32, Where::kMapped);
  EXPECT_FALSE(open_file().has_kind(kWeightsSection));
}

TEST_F(SnapshotWeightsTest, OtherWeightsAndOtherDtypesAreNative) {
  write_model("llama-gqa-tied-f32");
  const Answer native = save(DType::kF8E4M3, Where::kMapped);
  testing::internal::CaptureStderr();
  Snapshot other = open_file("other digest");
  EXPECT_EQ(ask(*start(DType::kF8E4M3, &other, Where::kMapped)), native);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("section 'weights' was made for weights 'digest', this start has 'other"));
  Snapshot bf16 = open_file();
  start(DType::kBF16, &bf16, Where::kMapped);
  EXPECT_THAT(outcome(bf16).reason, HasSubstr("was made for dtype 'fp8"));
}

TEST_F(SnapshotWeightsTest, AFlippedByteIsToldInOneLineAndTheAnswerIsRight) {
  write_model("llama-mha");
  for (const Where where : {Where::kMapped, Where::kCopied}) {
    const Answer native = save(DType::kF8E4M3, where);
    const std::string whole = read_file(file_, 1 << 30).value();
    const auto file = SnapshotFile::open(file_);
    std::optional<SnapshotBlob> blob;
    for (const SnapshotSection& section : file->table().sections) {
      if (section.kind == kWeightsSection.name) blob = file->table().blobs[section.blob];
    }
    ASSERT_TRUE(blob);
    for (const std::uint64_t at : {std::uint64_t{0}, blob->bytes / 2, blob->stored_bytes() - 1}) {
      std::string flipped = whole;
      char& byte = flipped[static_cast<std::size_t>(blob->offset + at)];
      byte = static_cast<char>(byte ^ 1);
      folder_.write("f.snapshot", flipped);
      Snapshot snapshot = open_file();
      testing::internal::CaptureStderr();
      const auto engine = start(DType::kF8E4M3, &snapshot, where);
      EXPECT_EQ(ask(*engine), native) << at;
      EXPECT_EQ(ask(*engine), native) << at;
      const std::string err = testing::internal::GetCapturedStderr();
      EXPECT_THAT(err, HasSubstr("section 'weights' is damaged; save the snapshot again; made"));
      EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
      EXPECT_FALSE(outcome(snapshot).restored);
    }
  }
}

// Before it is mapped its size tells it; afterwards the watch on mapped files.
TEST_F(SnapshotWeightsTest, AFileThatShrinksNeverGivesAWrongAnswer) {
  write_model("llama-mha");
  const Answer native = save(DType::kF8E4M3, Where::kMapped);
  const std::string whole = read_file(file_, 1 << 30).value();
  {
    Snapshot snapshot = open_file();
    ASSERT_EQ(truncate(file_.c_str(), 8192), 0);
    EXPECT_EQ(ask(*start(DType::kF8E4M3, &snapshot, Where::kMapped)), native);
    EXPECT_THAT(outcome(snapshot).reason, HasSubstr("became shorter after it was opened"));
  }
  folder_.write("f.snapshot", whole);
  Snapshot snapshot = open_file();
  const auto engine = start(DType::kF8E4M3, &snapshot, Where::kMapped);
  EXPECT_EQ(ask(*engine), native);
  ASSERT_EQ(truncate(file_.c_str(), 8192), 0);
  Request request = test::greedy_request(2, {1, 2, 3}, 2);
  ASSERT_TRUE(engine->engine().add_request(std::move(request)));
  const auto step = engine->engine().step();
  ASSERT_FALSE(step);
  EXPECT_THAT(step.error().message, AllOf(HasSubstr(file_), HasSubstr("truncated")));
}

TEST_F(SnapshotWeightsTest, AFileThatIsReplacedStaysTheOneThatWasOpened) {
  write_model("llama-mha");
  const Answer native = save(DType::kF8E4M3, Where::kMapped);
  Snapshot snapshot = open_file();
  const auto engine = start(DType::kF8E4M3, &snapshot, Where::kMapped);
  folder_.write("other", std::string(100, 'x'));
  std::filesystem::rename(folder_.file("other"), file_);
  EXPECT_EQ(ask(*engine), native);
  finish(*engine);
  EXPECT_TRUE(outcome(snapshot).restored);
}

}  // namespace
}  // namespace sluice
