#include "engine/weight_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "snapshot/snapshot_format.h"

namespace sluice {
namespace {

constexpr std::size_t kPiece = kSnapshotPieceBytes;

// Three stages over a section of three and a half pieces, and one stage that is only mapped.
class WeightStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < section_.size(); ++i) section_[i] = std::byte(i * 7 + i / 4096);
    pieces_ = hash_pieces(section_);
    stages_.resize(4);
    stages_[0].derived = {kOffset, 100};
    stages_[1].derived = {kOffset + 100, kPiece};  // ends in the second piece
    stages_[1].mapped = {std::span<const std::byte>(mapped_)};
    stages_[2].derived = {kOffset + 100 + kPiece, section_.size() - kPiece - 100};
    stages_[3].mapped = {std::span<const std::byte>(mapped_).first(5000)};
    ArenaPlan plan;
    plan.add(RegionKind::kWeights, "weights", 64);
    plan.finish(device_->traits().granularity);
    arena_ = std::make_unique<Arena>(*Arena::create(*device_, std::move(plan)));
  }

  std::unique_ptr<WeightStream> stream() {
    StreamedSection section;
    section.bytes = section_;
    section.region_offset = kOffset;
    section.pieces = pieces_;
    section.checked = [this] { ++checked_; };
    section.remake = [this](Arena&) {
      ++remade_;
      return remake_;
    };
    return std::make_unique<WeightStream>(stages_, std::move(section), StreamedConversion{}, pool_);
  }

  static constexpr std::size_t kOffset = std::size_t{2} << 20;
  ThreadPool pool_{2};
  std::unique_ptr<Device> device_ = *make_cpu_device({&pool_, 0, {}});
  std::unique_ptr<Arena> arena_;
  std::vector<std::byte> section_ = std::vector<std::byte>(3 * kPiece + 8192);
  std::vector<std::byte> mapped_ = std::vector<std::byte>(2 * kPiece + 17);
  std::vector<Hash128> pieces_;
  std::vector<WeightStage> stages_;
  Status remake_;
  int checked_ = 0;
  int remade_ = 0;
};

TEST_F(WeightStreamTest, StagesPassInOrderAndTheSectionIsCheckedOnce) {
  const auto stream = this->stream();
  EXPECT_EQ(stream->bytes(), section_.size() + mapped_.size() + 5000);
  stream->start(*arena_);
  for (std::size_t stage = 0; stage < 3; ++stage) {
    EXPECT_TRUE(stream->wait(stage)) << stage;
    EXPECT_EQ(checked_, 0);
  }
  EXPECT_TRUE(stream->finish());
  EXPECT_TRUE(stream->finish());
  EXPECT_TRUE(stream->finished());
  EXPECT_FALSE(stream->remade());
  EXPECT_EQ(checked_, 1);
  EXPECT_EQ(remade_, 0);
}

// A byte of each piece, the padding included, is told by the first stage that uses the piece, and
// not before.
TEST_F(WeightStreamTest, AFlippedByteIsToldBeforeItsStageRuns) {
  const std::size_t first_stage[] = {0, 1, 2, 2};
  ASSERT_EQ(pieces_.size(), 4U);
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
    const std::size_t at = piece == 3 ? section_.size() - 1 : piece * kPiece + 99;
    section_[at] ^= std::byte{1};
    remade_ = 0;
    const auto stream = this->stream();
    // Without its thread, so that the stages alone decide what is read.
    for (std::size_t stage = 0; stage < first_stage[piece]; ++stage) {
      EXPECT_TRUE(stream->wait(stage));
      EXPECT_EQ(remade_, 0) << "piece " << piece << ", stage " << stage;
    }
    stream->start(*arena_);
    EXPECT_TRUE(stream->wait(first_stage[piece]));
    EXPECT_EQ(remade_, 1) << piece;
    EXPECT_TRUE(stream->remade());
    EXPECT_TRUE(stream->finish());
    EXPECT_EQ(remade_, 1);
    section_[at] ^= std::byte{1};
  }
  EXPECT_EQ(checked_, 0);
}

TEST_F(WeightStreamTest, EveryStepTellsThatDamagedWeightsCannotBeMadeAgain) {
  section_[0] ^= std::byte{1};
  remake_ = unavailable("model.safetensors: is gone");
  const auto stream = this->stream();
  stream->start(*arena_);
  EXPECT_FALSE(stream->wait(0));
  EXPECT_FALSE(stream->wait(1));
  EXPECT_FALSE(stream->poll());
}

// By the stream's thread, and by the steps.
TEST_F(WeightStreamTest, PiecesAreConvertedOnceBeforeTheirStageRuns) {
  for (const bool reads_ahead : {false, true}) {
    std::array<std::atomic<int>, 40> converted = {};
    int finished = 0;
    StreamedConversion conversion;
    for (std::size_t i = 0; i < converted.size(); ++i) {
      conversion.pieces.push_back({.stage = i / 20 + 1, .source = mapped_, .placement = i});
    }
    conversion.convert = [&](const DerivedPiece& piece, const Arena&) {
      ++converted[piece.placement];
      return Status();
    };
    conversion.finish = [&](Arena& arena) {
      EXPECT_EQ(&arena, arena_.get());
      ++finished;
      return Status();
    };
    WeightStream stream(stages_, {}, std::move(conversion), pool_);
    stream.start(*arena_);
    if (reads_ahead) {
      while (converted[19] == 0) std::this_thread::yield();
    }
    for (std::size_t stage = 0; stage < 3; ++stage) {
      EXPECT_TRUE(stream.wait(stage));
      for (std::size_t i = 0; i < 20 * stage; ++i) EXPECT_EQ(converted[i], 1) << i;
    }
    EXPECT_EQ(finished, 0);
    EXPECT_TRUE(stream.finish() && stream.finish());
    EXPECT_EQ(finished, 1);
  }
}

TEST_F(WeightStreamTest, EveryStepTellsThatWeightsCannotBeConverted) {
  StreamedConversion conversion;
  conversion.pieces.push_back({.stage = 1, .source = mapped_});
  conversion.pieces.push_back({.stage = 2, .source = mapped_});
  conversion.convert = [](const DerivedPiece&, const Arena&) {
    return Status(invalid_argument("w.weight: holds NaN"));
  };
  conversion.finish = [](Arena&) {
    ADD_FAILURE() << "nothing is converted";
    return Status();
  };
  WeightStream stream(stages_, {}, std::move(conversion), pool_);
  stream.start(*arena_);
  const Status first = stream.wait(1);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().message, "w.weight: holds NaN");
  EXPECT_FALSE(stream.wait(2));
  EXPECT_FALSE(stream.poll());
}

TEST_F(WeightStreamTest, EndsWhileItReads) {
  for (int i = 0; i < 20; ++i) {
    const auto stream = this->stream();
    stream->start(*arena_);
  }
  EXPECT_EQ(checked_, 0);
}

}  // namespace
}  // namespace sluice
