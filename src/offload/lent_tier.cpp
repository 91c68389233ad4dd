#include "offload/lent_tier.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "offload/file_io.h"
#include "offload/page_format.h"

namespace sluice {
namespace {

// Its own for each tier: nothing that another process writes or has written is ever accepted.
Result<HmacKey> random_key() {
  HmacKey key{};
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return unavailable("the system gives no random numbers");
  }
  return key;
}

}  // namespace

struct LentTier::Impl {
  struct Job {
    std::uint64_t id = 0;
    TierPage page;
    std::byte* target = nullptr;        // a load
    const std::byte* source = nullptr;  // a save
  };

  // `lent` is shared, as the header says.
  Impl(std::shared_ptr<LentMemory> lent, std::uint64_t bytes, const HmacKey& key)
      : memory(std::move(lent)),
        shape{bytes, 1},
        format(key, Sealing::kAesGcm, segment_identity(key, Sealing::kAesGcm, "lent memory")),
        buffer(shape.page_bytes()) {
    const std::int64_t pages = memory->most() / static_cast<std::int64_t>(shape.page_bytes());
    records.resize(static_cast<std::size_t>(std::min<std::int64_t>(pages, 1 << 30)));
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work.notify_all();
    if (thread.joinable()) thread.join();
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      work.wait(lock, [&] { return stopping || !loads.empty() || !saves.empty(); });
      if (stopping) return;
      std::deque<Job>& queue = loads.empty() ? saves : loads;
      const Job job = queue.front();
      queue.pop_front();
      busy = true;
      lock.unlock();
      Status status = job.source != nullptr ? save_page(job) : load_page(job);
      lock.lock();
      busy = false;
      ended.push_back({job.id, std::move(status)});
      done.notify_all();
    }
  }

  std::size_t block_bytes() const { return static_cast<std::size_t>(shape.block_bytes); }
  PageRecord& record_of(const Job& job) { return records[static_cast<std::size_t>(job.page.page)]; }

  Status save_page(const Job& job) {
    const std::int32_t page = job.page.page;
    const auto slot = memory->begin_save(page);
    if (!slot) return resource_exhausted("no lent memory is free");
    PageRecord record;
    record.name = job.page.name;
    record.tenant = job.page.tenant;
    record.group = static_cast<std::uint32_t>(job.page.group);
    format.seal_block(record, static_cast<std::uint64_t>(page), {job.source, block_bytes()},
                      buffer);
    const bool written = write_at(slot->fd, buffer, slot->offset);
    const int cause = errno;
    record_of(job) = record;
    if (!memory->end(page, *slot, written)) {
      return resource_exhausted("the lent memory was taken back");
    }
    if (written) return {};
    return resource_exhausted(
        fmt::format("lent memory cannot be written: {}", std::strerror(cause)));
  }

  // The bytes are copied first. Nothing is taken from the copy that was not checked.
  Status load_page(const Job& job) {
    const std::int32_t page = job.page.page;
    const PageRecord record = record_of(job);
    if (record.name != job.page.name ||
        record.group != static_cast<std::uint32_t>(job.page.group)) {
      return not_found("the page holds another block");
    }
    const auto slot = memory->begin_load(page);
    if (!slot) return not_found("the lent memory was taken back");
    const bool read = read_at(slot->fd, buffer, slot->offset);
    memory->end(page, *slot, true);
    if (!read || !format.open_block(record, static_cast<std::uint64_t>(page), buffer,
                                    {job.target, block_bytes()})) {
      return not_found("the lent memory was taken back or changed");
    }
    return {};
  }

  const std::shared_ptr<LentMemory> memory;  // shared, as the header says
  const SegmentShape shape;
  // Used by the thread, and by the constructor.
  PageFormat format;
  std::vector<std::byte> buffer;
  std::vector<PageRecord> records;  // by page

  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  // Guarded by `mutex`.
  bool stopping = false;
  bool busy = false;
  std::deque<Job> loads;
  std::deque<Job> saves;
  std::vector<TierMove> ended;

  std::thread thread;
};

LentTier::LentTier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LentTier::~LentTier() = default;

// `memory` is shared, as the header says.
Result<std::unique_ptr<LentTier>> LentTier::open(std::shared_ptr<LentMemory> memory,
                                                 std::uint64_t block_bytes) {
  CHECK(block_bytes > 0);
  ASSIGN_OR_RETURN(const HmacKey key, random_key());
  auto impl = std::make_unique<Impl>(std::move(memory), block_bytes, key);
  if (impl->records.empty()) {
    return invalid_argument(
        fmt::format("{} bytes have no room for a block of {}", impl->memory->most(), block_bytes));
  }
  impl->memory->use_pages(static_cast<std::int64_t>(impl->shape.page_bytes()));
  impl->thread = std::thread([raw = impl.get()] { raw->run(); });
  return std::unique_ptr<LentTier>(new LentTier(std::move(impl)));
}

std::int32_t LentTier::num_pages() const {
  return static_cast<std::int32_t>(impl_->records.size());
}

bool LentTier::accepts_saves() const { return impl_->memory->has_room(); }

void LentTier::save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) {
  CHECK(block.size() == impl_->block_bytes() && page.page >= 0 && page.page < num_pages());
  const std::lock_guard lock(impl_->mutex);
  impl_->saves.push_back({id, page, nullptr, block.data()});
  impl_->work.notify_one();
}

void LentTier::load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) {
  CHECK(block.size() == impl_->block_bytes() && page.page >= 0 && page.page < num_pages());
  const std::lock_guard lock(impl_->mutex);
  impl_->loads.push_back({id, page, block.data(), nullptr});
  impl_->work.notify_one();
}

void LentTier::touch(std::int32_t page) { impl_->memory->touch(page); }
void LentTier::erase(std::int32_t page) { impl_->memory->erase(page); }

void LentTier::poll(std::vector<TierMove>& ended) {
  const std::lock_guard lock(impl_->mutex);
  for (TierMove& move : impl_->ended) ended.push_back(std::move(move));
  impl_->ended.clear();
}

void LentTier::wait(Duration at_most) {
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait_for(lock, at_most, [&] { return !impl_->ended.empty(); });
}

// Nothing here lasts longer than the process.
Status LentTier::flush(Duration at_most) {
  std::unique_lock lock(impl_->mutex);
  const bool idle = impl_->done.wait_for(
      lock, at_most, [&] { return impl_->loads.empty() && impl_->saves.empty() && !impl_->busy; });
  if (idle) return {};
  return Error{ErrorCode::kDeadlineExceeded, "saves are still under way"};
}

}  // namespace sluice
