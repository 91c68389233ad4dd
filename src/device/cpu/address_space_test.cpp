#include "device/cpu/address_space.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/shared_memory.h"

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

TEST_F(AddressSpaceTest, AGivenBaseIsReservedIfItIsASlotAndFree) {
  const AddressRange first = reserve(2 * kGranule);
  const auto taken = space_.reserve_at(first.base, kGranule);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(taken.error().message, testing::HasSubstr("the range is taken"));
  space_.release(first);
  const auto again = space_.reserve_at(first.base, kGranule + 1);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->base, first.base);
  EXPECT_EQ(again->bytes, 2 * kGranule);
  space_.release(*again);
  // Files name bases: none may lead elsewhere.
  for (std::byte* wrong : {first.base + kGranule, static_cast<std::byte*>(nullptr),
                           first.base + AddressSpace::kSlotBytes * AddressSpace::kNumSlots}) {
    EXPECT_FALSE(space_.reserve_at(wrong, kGranule));
  }
  EXPECT_FALSE(space_.reserve_at(first.base, AddressSpace::kSlotBytes * 7));
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
  ASSERT_TRUE(
      space_.back(range, 0, 35 * kGranule, Backing::memory()));  // more than one piece of 64 MiB
  for (const std::size_t at : {std::size_t{0}, 33 * kGranule, 35 * kGranule - 1}) {
    EXPECT_EQ(range.base[at], std::byte{0});
    range.base[at] = std::byte{7};
  }
  space_.unback(range, 33 * kGranule, 2 * kGranule);
  ASSERT_TRUE(space_.back(range, 33 * kGranule, kGranule, Backing::memory()));
  EXPECT_EQ(range.base[33 * kGranule], std::byte{0});
  EXPECT_EQ(range.base[0], std::byte{7}) << "the rest is untouched";
  space_.release(range);
}

TEST_F(AddressSpaceTest, DiscardedMemoryIsNotResidentAndZeroAgain) {
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(space_.back(range, 0, kGranule, Backing::memory()));
  std::memset(range.base, 1, kGranule);
  space_.discard(range, 0, kGranule);
  std::vector<unsigned char> resident(kGranule / static_cast<std::size_t>(getpagesize()));
  ASSERT_EQ(mincore(range.base, kGranule, resident.data()), 0);
  for (const unsigned char page : resident) EXPECT_EQ(page & 1, 0);
  EXPECT_EQ(range.base[0], std::byte{0});
  range.base[0] = std::byte{2};
  EXPECT_EQ(range.base[0], std::byte{2});
  space_.release(range);
}

TEST_F(AddressSpaceTest, PopulatedMemoryIsResidentAndKeepsItsContents) {
  const AddressRange range = reserve(2 * kGranule);
  ASSERT_TRUE(space_.back(range, 0, 2 * kGranule, Backing::memory()));
  range.base[kGranule + 7] = std::byte{9};
  ASSERT_TRUE(space_.populate(range, kGranule, kGranule));
  std::vector<unsigned char> resident(kGranule / static_cast<std::size_t>(getpagesize()));
  ASSERT_EQ(mincore(range.base + kGranule, kGranule, resident.data()), 0);
  for (const unsigned char page : resident) EXPECT_EQ(page & 1, 1);
  EXPECT_EQ(range.base[kGranule + 7], std::byte{9});
  EXPECT_EQ(range.base[kGranule + 8], std::byte{0});
  ASSERT_EQ(mincore(range.base, kGranule, resident.data()), 0);
  EXPECT_EQ(resident[0] & 1, 0) << "of the piece before, nothing";
  space_.release(range);
}

TEST_F(AddressSpaceTest, AccessOutsideWhatIsBackedFaults) {
  const AddressRange range = reserve(2 * kGranule);
  ASSERT_TRUE(space_.back(range, 0, kGranule, Backing::memory()));
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
  ASSERT_TRUE(space_.back(range, kGranule, 5000, Backing::file(file.fd())));
  EXPECT_EQ(range.base[kGranule], std::byte{'x'});
  EXPECT_EQ(range.base[kGranule + 4999], std::byte{'x'});
  EXPECT_EQ(range.base[kGranule + 5000], std::byte{0});
  EXPECT_DEATH(range.base[kGranule] = std::byte{1}, "");
  space_.unback(range, kGranule, kGranule);
  ASSERT_TRUE(space_.back(range, kGranule, kGranule, Backing::memory()));
  EXPECT_EQ(range.base[kGranule], std::byte{0});
  space_.release(range);
}

TEST_F(AddressSpaceTest, MapsAPartOfAFile) {
  const TemporaryFile file(2 * 4096, 'x');
  ASSERT_EQ(pwrite(file.fd(), "y", 1, 4096), 1);
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(space_.back(range, 0, 4096, Backing::file(file.fd(), 4096)));
  EXPECT_EQ(range.base[0], std::byte{'y'});
  space_.unback(range, 0, kGranule);
  const auto beyond = space_.back(range, 0, 4097, Backing::file(file.fd(), 4096));
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, testing::HasSubstr("4097 bytes from byte 4096 requested"));
  space_.release(range);
}

TEST_F(AddressSpaceTest, SharedMemoryIsOneMemoryForAllItsMappings) {
  auto owned = create_shared_memory("test", 2 * kGranule);
  ASSERT_TRUE(owned) << owned.error().message;
  const auto reader = read_only_descriptor(owned->get());
  ASSERT_TRUE(reader) << reader.error().message;
  const AddressRange range = reserve(4 * kGranule);
  ASSERT_TRUE(
      space_.back(range, 0, 2 * kGranule, Backing::shared(owned->get(), Protection::kReadWrite)));
  ASSERT_TRUE(space_.back(range, 3 * kGranule, kGranule,
                          Backing::shared(reader->get(), Protection::kReadOnly, kGranule)));
  owned->close();
  range.base[kGranule + 5] = std::byte{9};
  EXPECT_EQ(range.base[3 * kGranule + 5], std::byte{9});
  EXPECT_DEATH(range.base[3 * kGranule] = std::byte{1}, "");
  space_.release(range);
}

TEST_F(AddressSpaceTest, AReadOnlyShareCanNeverBeMadeWritable) {
  auto owned = create_shared_memory("test", kGranule);
  ASSERT_TRUE(owned);
  const auto reader = read_only_descriptor(owned->get());
  ASSERT_TRUE(reader);
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(
      space_.back(range, 0, kGranule, Backing::shared(reader->get(), Protection::kReadOnly)));
  const auto writable = space_.protect(range, 0, kGranule, Protection::kReadWrite);
  ASSERT_FALSE(writable);
  EXPECT_THAT(writable.error().message, testing::HasSubstr(std::strerror(EACCES)));
  EXPECT_DEATH(range.base[0] = std::byte{1}, "");
  space_.unback(range, 0, kGranule);
  // A descriptor that can write would allow it.
  const auto refused =
      space_.back(range, 0, kGranule, Backing::shared(owned->get(), Protection::kReadOnly));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("opened read-only"));
  space_.release(range);
}

TEST_F(AddressSpaceTest, ASealedShareServesReadersAfterItsOwnerSealedIt) {
  auto owned = create_shared_memory("test", kGranule);
  ASSERT_TRUE(owned);
  ASSERT_EQ(pwrite(owned->get(), "w", 1, 0), 1);
  ASSERT_EQ(fcntl(owned->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  const auto reader = read_only_descriptor(owned->get());
  ASSERT_TRUE(reader);
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(
      space_.back(range, 0, kGranule, Backing::shared(reader->get(), Protection::kReadOnly)));
  EXPECT_EQ(range.base[0], std::byte{'w'});
  EXPECT_FALSE(space_.protect(range, 0, kGranule, Protection::kReadWrite));
  space_.release(range);
}

TEST_F(AddressSpaceTest, AShareCanBeSealedWhileAProcessStartedMeanwhileLives) {
  auto owned = create_shared_memory("test", kGranule);
  ASSERT_TRUE(owned);
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(
      space_.back(range, 0, kGranule, Backing::shared(owned->get(), Protection::kReadWrite)));
  range.base[0] = std::byte{'w'};
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  space_.unback(range, 0, kGranule);
  EXPECT_TRUE(seal_shared_memory(owned->get(), "memory"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  space_.release(range);
}

TEST_F(AddressSpaceTest, MemoryThatItsOwnerCanShrinkIsRefused) {
  const FileDescriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), static_cast<off_t>(kGranule)), 0);
  const TemporaryFile file(4096, 'x');
  const AddressRange range = reserve(kGranule);
  const auto refused =
      space_.back(range, 0, kGranule, Backing::shared(unsealed.get(), Protection::kReadWrite));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("F_SEAL_SHRINK"));
  EXPECT_FALSE(space_.back(range, 0, 4096, Backing::shared(file.fd(), Protection::kReadWrite)));
  auto owned = create_shared_memory("test", 4096);
  ASSERT_TRUE(owned);
  EXPECT_NE(ftruncate(owned->get(), 0), 0) << "sealed";
  const auto small =
      space_.back(range, 0, kGranule, Backing::shared(owned->get(), Protection::kReadWrite));
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, testing::HasSubstr("the file has 4096"));
  EXPECT_EQ(
      space_.back(range, 0, kGranule, Backing::imported(3, Protection::kReadWrite)).error().code,
      ErrorCode::kUnsupported);
  space_.release(range);
}

TEST_F(AddressSpaceTest, AReplacedFileLeavesTheMappingAsItWas) {
  const TemporaryFile file(4096, 'a');
  const AddressRange range = reserve(kGranule);
  ASSERT_TRUE(space_.back(range, 0, 4096, Backing::file(file.fd())));
  const TemporaryFile other(4096, 'b');
  ASSERT_EQ(std::rename(other.path().c_str(), file.path().c_str()), 0);
  EXPECT_EQ(range.base[100], std::byte{'a'});
  space_.release(range);
}

TEST_F(AddressSpaceTest, FileErrorsSayWhy) {
  const TemporaryFile file(4096, 'a');
  const AddressRange range = reserve(kGranule);
  ASSERT_EQ(ftruncate(file.fd(), 100), 0);
  const auto truncated = space_.back(range, 0, 4096, Backing::file(file.fd()));
  ASSERT_FALSE(truncated);
  EXPECT_THAT(truncated.error().message, testing::HasSubstr("the file has 100"));
  const auto closed = space_.back(range, 0, 10, Backing::file(-1));
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, testing::HasSubstr(std::strerror(EBADF)));
  const FileDescriptor folder(open(testing::TempDir().c_str(), O_RDONLY | O_DIRECTORY));
  const auto not_a_file = space_.back(range, 0, 1, Backing::file(folder.get()));
  ASSERT_FALSE(not_a_file);
  EXPECT_THAT(not_a_file.error().message, testing::HasSubstr(std::strerror(ENODEV)));
  // The reservation is still ours after the failures.
  ASSERT_TRUE(space_.back(range, 0, kGranule, Backing::memory()));
  range.base[0] = std::byte{1};
  space_.release(range);
}

}  // namespace
}  // namespace sluice
