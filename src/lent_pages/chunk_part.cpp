#include "lent_pages/chunk_part.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

class ChunkStore final : public LentStore {
 public:
  ChunkStore(std::unique_ptr<DeviceChunks> chunks, std::int64_t spare)
      : chunks_(std::move(chunks)), spare_(spare) {
    for (std::int64_t i = 0; i < chunks_->chunks(); ++i) free_.insert(i);
  }
  Result<std::unique_ptr<LentPart>> open(FileDescriptor process) override;

  std::int64_t chunk_bytes() const { return chunks_->chunk_bytes(); }
  std::int64_t bytes() const { return chunks_->chunks() * chunk_bytes(); }

  struct Made {
    std::int64_t place = 0;
    std::int64_t number = 0;  // of all chunks since the start
    FileDescriptor descriptor;
  };
  Result<Made> make() {
    ASSIGN_OR_RETURN(const std::int64_t left, chunks_->free_bytes());
    if (free_.empty() || left < chunk_bytes() + spare_) {
      return resource_exhausted("the device has no memory to lend more");
    }
    Made made{.place = *free_.begin(), .number = next_++, .descriptor = {}};
    ASSIGN_OR_RETURN(made.descriptor, chunks_->make(made.place));
    free_.erase(made.place);
    return made;
  }
  void drop(std::int64_t place) {
    chunks_->drop(place);
    free_.insert(place);
  }

 private:
  const std::unique_ptr<DeviceChunks> chunks_;
  const std::int64_t spare_;
  std::set<std::int64_t> free_;
  std::int64_t next_ = 0;
};

class ChunkPart final : public LentPart {
 public:
  ChunkPart(ChunkStore& store, FileDescriptor process)
      : store_(store), process_(std::move(process)) {}
  // Only this process's hold of the chunks ends.
  ~ChunkPart() override {
    for (const auto& [number, place] : there_) store_.drop(place);
  }
  ChunkPart(const ChunkPart&) = delete;
  ChunkPart& operator=(const ChunkPart&) = delete;

  bool by_consent() const override { return true; }
  std::int64_t size() const override { return store_.bytes(); }
  std::int64_t unit() const override { return store_.chunk_bytes(); }
  std::int64_t step() const override { return store_.chunk_bytes(); }
  std::int64_t usable() const override { return usable_; }
  std::int64_t given() const override {
    return static_cast<std::int64_t>(there_.size()) * store_.chunk_bytes();
  }
  std::int64_t counted() const override { return given(); }

  Status take(std::int64_t bytes) override;
  Status grow(std::int64_t bytes) override;

  int descriptor() const override { return -1; }
  std::int64_t chunk_bytes() const override { return store_.chunk_bytes(); }
  bool has_news() const override { return !unsent_.empty() || told_ != usable_; }
  Status tell(PageLink& link) override;
  bool hear(const PageMessage& message) override;

  bool end() override;
  int ending() const override { return process_.get(); }

 private:
  void drop_unsent();  // the last of them

  ChunkStore& store_;
  const FileDescriptor process_;
  std::int64_t usable_ = 0;
  std::int64_t told_ = -1;
  std::map<std::int64_t, std::int64_t> there_;  // places by number: made, and not come back
  std::deque<ChunkStore::Made> unsent_;
};

Result<std::unique_ptr<LentPart>> ChunkStore::open(FileDescriptor process) {
  if (!process.valid()) {
    return unsupported(
        "a borrower's process is not visible here (another PID namespace), so nothing would show "
        "that it has ended");
  }
  return std::unique_ptr<LentPart>(std::make_unique<ChunkPart>(*this, std::move(process)));
}

Status ChunkPart::take(std::int64_t bytes) {
  usable_ = bytes;
  while (!unsent_.empty() && given() > usable_) drop_unsent();
  return {};
}

// The borrower has never seen it.
void ChunkPart::drop_unsent() {
  store_.drop(unsent_.back().place);
  there_.erase(unsent_.back().number);
  unsent_.pop_back();
}

// Chunks that have not come back from an earlier recall are used again.
Status ChunkPart::grow(std::int64_t bytes) {
  if (given() <= usable_) {
    ASSIGN_OR_RETURN(ChunkStore::Made made, store_.make());
    there_[made.number] = made.place;
    unsent_.push_back(std::move(made));
  }
  usable_ = std::min(bytes, usable_ + store_.chunk_bytes());
  return {};
}

Status ChunkPart::tell(PageLink& link) {
  while (!unsent_.empty()) {
    PageMessage message;
    message.kind = PageMessageKind::kChunk;
    message.number = unsent_.front().number;
    message.bytes = usable_;
    ASSIGN_OR_RETURN(const bool sent, link.send(message, unsent_.front().descriptor.get()));
    if (!sent) return {};
    unsent_.pop_front();
    told_ = usable_;
  }
  if (told_ == usable_) return {};
  PageMessage message;
  message.kind = PageMessageKind::kBacked;
  message.bytes = usable_;
  ASSIGN_OR_RETURN(const bool sent, link.send(message));
  if (sent) told_ = usable_;
  return {};
}

bool ChunkPart::hear(const PageMessage& message) {
  const auto found = there_.find(message.number);
  const bool is_unsent = std::ranges::any_of(
      unsent_, [&](const ChunkStore::Made& made) { return made.number == message.number; });
  if (message.kind != PageMessageKind::kReturned || found == there_.end() || is_unsent)
    return false;
  store_.drop(found->second);
  there_.erase(found);
  usable_ = std::min(usable_, given());
  return true;
}

// The kernel closes the descriptors of a process, the driver's too, before it reports its end.
bool ChunkPart::end() {
  usable_ = 0;
  while (!unsent_.empty()) drop_unsent();
  pollfd ended{process_.get(), POLLIN, 0};
  if (!there_.empty() && ::poll(&ended, 1, 0) != 1) return false;
  for (const auto& [number, place] : there_) store_.drop(place);
  there_.clear();
  return true;
}

}  // namespace

std::unique_ptr<LentStore> make_chunk_store(std::unique_ptr<DeviceChunks> chunks,
                                            std::int64_t spare) {
  return std::make_unique<ChunkStore>(std::move(chunks), spare);
}

}  // namespace sluice
