// The stream of a long sequence's KV: bytes come back as they were saved, or not at all.
#include "offload/kv_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "tests/support/checkpoint_files.h"

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr KvStream::Shape kStreamShape{.layers = 3, .pieces = 5, .slices = 2, .slice_bytes = 4096};

// Fails reads and writes, and changes what is read.
class StreamIo final : public FileIo {
 public:
  bool write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) const override {
    if (!writes_fail) return write_at(fd, bytes, offset);
    errno = ENOSPC;
    return false;
  }
  bool read(int fd, std::span<std::byte> bytes, std::uint64_t offset) const override {
    if (reads_fail) errno = EIO;
    if (reads_fail || !read_at(fd, bytes, offset + shift)) return false;
    if (flip >= 0) bytes[static_cast<std::size_t>(flip)] ^= std::byte{4};
    return true;
  }
  std::atomic<bool> writes_fail = false;
  std::atomic<bool> reads_fail = false;
  std::atomic<std::uint64_t> shift = 0;
  std::atomic<int> flip = -1;
};

class KvStreamTest : public testing::Test {
 protected:
  KvStream::Options options() {
    KvStream::Options made;
    made.folder = folder_.path();
    made.max_bytes = kStreamShape.file_bytes();
    made.read_bytes = 2 * static_cast<std::uint64_t>(kStreamShape.piece_bytes());
    made.io = io_;
    return made;
  }
  // Slices of a layer, each of its own bytes.
  struct Slices {
    explicit Slices(int count, int seed = -1) : bytes(static_cast<std::size_t>(count) * 4096) {
      for (int i = 0; i < count; ++i) {
        std::byte* const slice = bytes.data() + static_cast<std::ptrdiff_t>(i) * 4096;
        if (seed >= 0) std::memset(slice, seed + i, 4096);
        places.push_back(slice);
      }
    }
    std::vector<std::byte> bytes;
    std::vector<std::byte*> places;
  };
  static Status save(KvStream& stream, const KvStream::Range& range, const Slices& slices) {
    KvStream::Batch batch;
    stream.save(batch, range, slices.places);
    return stream.wait(batch);
  }
  static Status load(KvStream& stream, const KvStream::Range& range, const Slices& slices) {
    KvStream::Batch batch;
    stream.load(batch, range, slices.places);
    return stream.wait(batch);
  }

  TempDirectory folder_;
  std::shared_ptr<StreamIo> io_ = std::make_shared<StreamIo>();
};

TEST_F(KvStreamTest, GivesBackWhatWasSaved) {
  KvStream stream(options());
  ASSERT_TRUE(stream.begin(kStreamShape));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  std::vector<Slices> saved;
  for (int layer = 0; layer < 3; ++layer) {
    saved.emplace_back(10, 50 * layer);
    ASSERT_TRUE(save(stream, {layer, 0, 5}, saved.back()));
  }
  // Several loads of one batch.
  KvStream::Batch batch;
  std::vector<Slices> loaded;
  for (int layer = 0; layer < 3; ++layer) loaded.emplace_back(10);
  for (int layer = 0; layer < 3; ++layer) {
    stream.load(batch, {layer, 0, 5}, loaded[static_cast<std::size_t>(layer)].places);
  }
  ASSERT_TRUE(stream.wait(batch));
  for (std::size_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(loaded[layer].bytes, saved[layer].bytes);
  }
  EXPECT_EQ(stream.bytes().saved, static_cast<std::int64_t>(kStreamShape.file_bytes()));
  EXPECT_EQ(stream.bytes().loaded, stream.bytes().saved);

  Slices part(4);
  ASSERT_TRUE(load(stream, {1, 2, 2}, part));
  EXPECT_EQ(std::memcmp(part.bytes.data(), saved[1].places[4], part.bytes.size()), 0);
  EXPECT_TRUE(load(stream, {0, 5, 0}, Slices(0)));
}

TEST_F(KvStreamTest, PiecesAreReplaced) {
  KvStream stream(options());
  ASSERT_TRUE(stream.begin(kStreamShape));
  ASSERT_TRUE(save(stream, {0, 0, 1}, Slices(2, 1)));
  const Slices second(2, 7);
  ASSERT_TRUE(save(stream, {0, 0, 1}, second));
  Slices loaded(2);
  ASSERT_TRUE(load(stream, {0, 0, 1}, loaded));
  EXPECT_EQ(loaded.bytes, second.bytes);
}

TEST_F(KvStreamTest, DamageIsAnError) {
  KvStream stream(options());
  ASSERT_TRUE(stream.begin(kStreamShape));
  ASSERT_TRUE(save(stream, {0, 0, 5}, Slices(10, 1)));
  for (const int byte : {0, 4095, 8191}) {
    io_->flip = byte;
    const auto loaded = load(stream, {0, 0, 1}, Slices(2));
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr("damaged"));
  }
  io_->flip = -1;
  // A piece in another piece's place.
  io_->shift = static_cast<std::uint64_t>(kStreamShape.piece_bytes());
  EXPECT_FALSE(load(stream, {0, 0, 1}, Slices(2)));
  io_->shift = 0;
  EXPECT_TRUE(load(stream, {0, 0, 1}, Slices(2)));
}

TEST_F(KvStreamTest, ErrorsOfTheDiskEndTheBatchOnly) {
  KvStream stream(options());
  ASSERT_TRUE(stream.begin(kStreamShape));
  const Slices saved(10, 1);
  io_->writes_fail = true;
  const auto full = save(stream, {0, 0, 5}, saved);
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("cannot be written: No space left"));
  io_->writes_fail = false;
  ASSERT_TRUE(save(stream, {0, 0, 5}, saved));

  io_->reads_fail = true;
  const auto broken = load(stream, {0, 0, 5}, Slices(10));
  ASSERT_FALSE(broken);
  EXPECT_THAT(broken.error().message, HasSubstr("cannot be read: Input/output error"));
  EXPECT_THAT(broken.error().message, HasSubstr(folder_.path()));
  io_->reads_fail = false;
  EXPECT_TRUE(load(stream, {0, 0, 5}, Slices(10)));
}

TEST_F(KvStreamTest, KeepsItsLimits) {
  KvStream::Options small = options();
  small.max_bytes = kStreamShape.file_bytes() - 1;
  const auto limit = KvStream(small).begin(kStreamShape);
  ASSERT_FALSE(limit);
  EXPECT_THAT(limit.error().message, HasSubstr("the limit is stream="));

  KvStream::Options floor = options();
  floor.free_bytes = std::uint64_t{1} << 62;
  const auto room = KvStream(floor).begin(kStreamShape);
  ASSERT_FALSE(room);
  EXPECT_THAT(room.error().message, HasSubstr("must stay free"));

  KvStream::Options gone = options();
  gone.folder = folder_.file("none");
  const auto folder = KvStream(gone).begin(kStreamShape);
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr("No such file"));
}

TEST_F(KvStreamTest, ANewSequenceHasANewFile) {
  KvStream stream(options());
  ASSERT_TRUE(stream.begin(kStreamShape));
  ASSERT_TRUE(save(stream, {0, 0, 5}, Slices(10, 1)));
  constexpr KvStream::Shape kOtherStream{
      .layers = 2, .pieces = 3, .slices = 1, .slice_bytes = 8192};
  ASSERT_TRUE(stream.begin(kOtherStream));
  stream.end();
  ASSERT_TRUE(stream.begin(kStreamShape));
  const Slices saved(2, 9);
  ASSERT_TRUE(save(stream, {2, 4, 1}, saved));
  Slices loaded(2);
  ASSERT_TRUE(load(stream, {2, 4, 1}, loaded));
  EXPECT_EQ(loaded.bytes, saved.bytes);
}

}  // namespace
}  // namespace sluice
