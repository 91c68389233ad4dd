#include "lent_pages/file_part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/large_pages.h"
#include "base/log.h"
#include "base/shared_memory.h"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kStep = std::int64_t{32} << 20;  // of memory, between two looks at the time

bool punch(const FileDescriptor& file, std::int64_t from, std::int64_t end) {
  if (from >= end) return true;
  for (;;) {
    if (::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, end - from) ==
        0) {
      return true;
    }
    if (errno != EINTR) return false;
  }
}

// A seal against more seals, so that no borrower can seal the file against the punch.
Result<FileDescriptor> make_file(std::int64_t bytes) {
  ASSIGN_OR_RETURN(FileDescriptor file,
                   create_shared_memory("sluice-lent-pages", static_cast<std::size_t>(bytes)));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL) == 0) return file;
  return internal_error(fmt::format("cannot seal lent memory: {}", std::strerror(errno)));
}

class FileStore final : public LentStore {
 public:
  FileStore(std::int64_t most, std::function<std::int64_t()> available, std::int64_t spare)
      : most_(most), available_(std::move(available)), spare_(spare) {}
  Result<std::unique_ptr<LentPart>> open(FileDescriptor process) override;

  bool has_room(std::int64_t bytes) const { return !available_ || available_() >= bytes + spare_; }
  void got_small_pages() {
    if (std::exchange(has_small_pages_, true)) return;
    log_warning(fmt::format(
        "--lend-pages: the system gave no large pages for shared memory (shmem_enabled: {}), so "
        "1 GiB needs more than 100 ms to come back; to change that: {}",
        shared_large_page_rule(), kLargePageAdvice));
  }

 private:
  const std::int64_t most_;
  const std::function<std::int64_t()> available_;
  const std::int64_t spare_;
  bool has_small_pages_ = false;  // the log has it
};

class FilePart final : public LentPart {
 public:
  FilePart(FileStore& store, FileDescriptor file, std::int64_t size)
      : store_(store), file_(std::move(file)), size_(size) {}
  ~FilePart() override { static_cast<void>(end()); }
  FilePart(const FilePart&) = delete;
  FilePart& operator=(const FilePart&) = delete;

  bool by_consent() const override { return false; }
  std::int64_t size() const override { return size_; }
  std::int64_t unit() const override { return kPage; }
  std::int64_t step() const override { return kStep; }
  std::int64_t usable() const override { return usable_; }
  std::int64_t given() const override { return usable_; }
  std::int64_t counted() const override;

  Status take(std::int64_t bytes) override;
  Status grow(std::int64_t bytes) override;

  int descriptor() const override { return file_.get(); }
  std::int64_t chunk_bytes() const override { return 0; }
  bool has_news() const override { return told_ != usable_; }
  Status tell(PageLink& link) override;
  bool hear(const PageMessage&) override { return false; }

  // The borrower may still have the file open.
  bool end() override { return punch(file_, 0, size_); }
  int ending() const override { return -1; }

 private:
  void ask_for_large_pages(std::int64_t step);

  FileStore& store_;
  const FileDescriptor file_;
  const std::int64_t size_;
  std::int64_t usable_ = 0;
  std::int64_t told_ = -1;
};

Result<std::unique_ptr<LentPart>> FileStore::open(FileDescriptor) {
  ASSIGN_OR_RETURN(FileDescriptor file, make_file(most_));
  return std::unique_ptr<LentPart>(std::make_unique<FilePart>(*this, std::move(file), most_));
}

std::int64_t FilePart::counted() const {
  struct stat facts{};
  if (::fstat(file_.get(), &facts) != 0) return usable_;
  return std::max(usable_, static_cast<std::int64_t>(facts.st_blocks) * 512);
}

Status FilePart::take(std::int64_t bytes) {
  bytes = std::max(bytes, usable_ - kStep);
  if (!punch(file_, bytes, size_)) return internal_error(std::strerror(errno));
  usable_ = bytes;
  return {};
}

Status FilePart::grow(std::int64_t bytes) {
  const std::int64_t step = std::min(bytes - usable_, kStep);
  if (!store_.has_room(step)) return resource_exhausted("the system has no memory to lend more");
  ask_for_large_pages(step);
  if (::fallocate(file_.get(), 0, usable_, step) == 0) {
    usable_ += step;
    return {};
  }
  const int cause = errno;
  // The call may have got a part before it failed.
  static_cast<void>(punch(file_, usable_, size_));
  return resource_exhausted(
      fmt::format("the system has no memory to lend more ({})", std::strerror(cause)));
}

// Large pages go back to the system some fifty times as fast as small ones. The range begins with
// the last 2 MiB that an earlier step did not fill.
void FilePart::ask_for_large_pages(std::int64_t step) {
  const std::int64_t from = usable_ / kLargePageBytes * kLargePageBytes;
  if (!take_large_pages(file_.get(), from, usable_ + step - from)) store_.got_small_pages();
}

Status FilePart::tell(PageLink& link) {
  if (!has_news()) return {};
  PageMessage message;
  message.kind = PageMessageKind::kBacked;
  message.bytes = usable_;
  ASSIGN_OR_RETURN(const bool sent, link.send(message));
  if (sent) told_ = usable_;  // else again, when the socket accepts it
  return {};
}

}  // namespace

std::unique_ptr<LentStore> make_file_store(std::int64_t most,
                                           std::function<std::int64_t()> available,
                                           std::int64_t spare) {
  return std::make_unique<FileStore>(most, std::move(available), spare);
}

}  // namespace sluice
