#include "device/cpu/address_space.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/file.h"

namespace sluice {
namespace {

constexpr std::size_t kGranule = AddressSpace::kGranularity;

// A file of its own that disappears with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::size_t bytes, char fill) {
    std::string pattern = testing::TempDir() + "address_space_XXXXXX";
    fd_ = FileDescriptor(mkstemp(pattern.data()));
    path_ = pattern;
    const std::string text(bytes, fill);
    EXPECT_EQ(write(fd_.get(), text.data(), bytes), static_cast<ssize_t>(bytes));
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  FileDescriptor fd_;
  std::string path_;
};

class AddressSpaceTest : public testing::Test {
 protected:
  AddressRange reserve(std::size_t bytes) {
    auto range = space_.reserve(bytes);
    EXPECT_TRUE(range) << range.error().message;
    return range.value_or(AddressRange{});
  }
  AddressSpace space_;
};

TEST_F(AddressSpaceTest, BasesAreSlotsOfAFixedSeries) {
  const AddressRange first = reserve(1);
  const AddressRange second = reserve(kGranule + 1);
  EXPECT_EQ(first.bytes, kGranule);
  EXPECT_EQ(second.bytes, 2 * kGranule);
  const auto base = reinterpret_cast<std::size_t>(first.base);
  EXPECT_EQ((base - AddressSpace::kFirstBase) % AddressSpace::kSlotBytes, 0U);
  EXPECT_GT(second.base, first.base);
  space_.release(first);
  const AddressRange again = reserve(kGranule);
  EXPECT_EQ(again.base, first.base) << "the same series, so the same base again";
  space_.release(again);
  space_.release(second);
}

TEST_F(AddressSpaceTest, ATakenSlotMeansTheNext) {
  const AddressRange first = reserve(kGranule);
  space_.release(first);
  // Something else in the middle of that slot.
  std::byte* squatter = first.base + 16 * kGranule;
  ASSERT_EQ(
      mmap(squatter, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
      squatter);
  const AddressRange small = reserve(kGranule);
  EXPECT_EQ(small.base, first.base) << "fits in front of it";
  const AddressRange large = reserve(32 * kGranule);
  EXPECT_GT(large.base, squatter);
  munmap(squatter, 4096);
  space_.release(small);
  space_.release(large);
}

TEST_F(AddressSpaceTest, TellsWhenNothingIsLeft) {
  const auto none = space_.reserve(0);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
  const auto huge = space_.reserve(std::size_t{1} << 45);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kUnavailable);

  std::vector<AddressRange> all;
  while (true) {
    auto range = space_.reserve(AddressSpace::kSlotBytes);
    if (!range) {
      EXPECT_EQ(range.error().code, ErrorCode::kUnavailable);
      EXPECT_THAT(range.error().message, testing::HasSubstr("taken"));
      break;
    }
    all.push_back(*range);
  }
  EXPECT_GE(all.size(), 1U);
  EXPECT_LE(all.size(), static_cast<std::size_t>(AddressSpace::kNumSlots));
  for (const AddressRange& range : all) space_.release(range);
}

TEST_F(AddressSpaceTest, BackedMemoryIsZeroAndZeroAgainAfterwards) {
  const AddressRange range = reserve(40 * kGranule);
  ASSERT_TRUE(space_.back(range, 0, 35 * kGranule));  // more than one piece of 64 MiB
  for (const std::size_t at : {std::size_t{0}, 33 * kGranule, 35 * kGranule - 1}) {
    EXPECT_EQ(range.base[at], std::byte{0});
    range.base[at] = std::byte{7};
  }
  space_.unback(range, 33 * kGranule, 2 * kGranule);
  ASSERT_TRUE(space_.back(range, 33 * kGranule, kGranule));
  EXPECT_EQ(range.base[33 * kGranule], std::byte{0});
  EXPECT_EQ(range.base[0], std::byte{7}) << "the rest is untouched";
  space_.release(range);
}

TEST_F(AddressSpaceTest, AccessOutsideWhatIsBackedFaults) {
  const AddressRange range = reserve(2 * kGranule);
  ASSERT_TRUE(space_.back(range, 0, kGranule));
  EXPECT_DEATH(range.base[kGranule] = std::byte{1}, "");
  ASSERT_TRUE(space_.protect(range, 0, kGranule, Protection::kReadOnly));
  EXPECT_EQ(range.base[5], std::byte{0});
  EXPECT_DEATH(range.base[5] = std::byte{1}, "");
  ASSERT_TRUE(space_.protect(range, 0, kGranule, Protection::kReadWrite));
  range.base[5] = std::byte{1};
  space_.release(range);
}

TEST_F(AddressSpaceTest, MapsAFileReadOnlyWithAZeroTail) {
  const TemporaryFile file(5000, 'x');
  const AddressRange range = reserve(3 * kGranule);
  ASSERT_TRUE(space_.back_with_file(range, kGranule, file.fd(), 5000));
  EXPECT_EQ(range.base[kGranule], std::byte{'x'});
  EXPECT_EQ(range.base[kGranule + 4999], std::byte{'x'});
  EXPECT_EQ(range.base[kGranule + 5000], std::byte{0});
  EXPECT_DEATH(range.base[kGranule] = std::byte{1}, "");
  space_.unback(range, kGranule, kGranule);
  ASSERT_TRUE(space_.back(range, kGranule, kGranule));
  EXPECT_EQ(range.base[kGranule], std::byte{0});
  space_.release(range);
}

TEST_F(AddressSpaceTest, AReplacedFileLeavesTheMappingAsItWas) {
  const TemporaryFile file(4096, 'a');
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(space_.back_with_file(range, 0, file.fd(), 4096));
  const TemporaryFile other(4096, 'b');
  ASSERT_EQ(std::rename(other.path().c_str(), file.path().c_str()), 0);
  EXPECT_EQ(range.base[100], std::byte{'a'});
  space_.release(range);
}

TEST_F(AddressSpaceTest, FileErrorsSayWhy) {
  const TemporaryFile file(4096, 'a');
  const AddressRange range = reserve(kGranule);
  ASSERT_EQ(ftruncate(file.fd(), 100), 0);
  const auto truncated = space_.back_with_file(range, 0, file.fd(), 4096);
  ASSERT_FALSE(truncated);
  EXPECT_THAT(truncated.error().message, testing::HasSubstr("the file has 100"));
  const auto closed = space_.back_with_file(range, 0, -1, 10);
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, testing::HasSubstr(std::strerror(EBADF)));
  const FileDescriptor folder(open(testing::TempDir().c_str(), O_RDONLY | O_DIRECTORY));
  const auto not_a_file = space_.back_with_file(range, 0, folder.get(), 1);
  ASSERT_FALSE(not_a_file);
  EXPECT_THAT(not_a_file.error().message, testing::HasSubstr(std::strerror(ENODEV)));
  // The reservation is still ours after the failures.
  ASSERT_TRUE(space_.back(range, 0, kGranule));
  range.base[0] = std::byte{1};
  space_.release(range);
}

}  // namespace
}  // namespace sluice
