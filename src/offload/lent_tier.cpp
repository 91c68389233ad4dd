#include "offload/lent_tier.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "offload/move_queue.h"
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
  // `lent` is shared, as the header says.
  Impl(std::shared_ptr<LentMemory> lent, std::uint64_t bytes, const HmacKey& key)
      : memory(std::move(lent)),
        shape{bytes, 1},
        format(key, Sealing::kAesGcm, segment_identity(key, Sealing::kAesGcm, "lent memory")),
        buffer(shape.page_bytes()) {
    const std::int64_t pages = memory->most() / static_cast<std::int64_t>(shape.page_bytes());
    records.resize(static_cast<std::size_t>(std::min<std::int64_t>(pages, 1 << 30)));
  }

  std::size_t block_bytes() const { return static_cast<std::size_t>(shape.block_bytes); }
  PageRecord& record_of(const QueuedMove& job) {
    return records[static_cast<std::size_t>(job.page.page)];
  }

  Status save_page(const QueuedMove& job) {
    const std::int32_t page = job.page.page;
    const auto slot = memory->begin_save(page);
    if (!slot) return resource_exhausted("no lent memory is free");
    PageRecord record;
    record.name = job.page.name;
    record.tenant = job.page.tenant;
    record.group = static_cast<std::uint32_t>(job.page.group);
    format.seal_block(record, static_cast<std::uint64_t>(page), {job.source, block_bytes()},
                      buffer);
    const Status written = slot->memory->write(slot->offset, buffer);
    record_of(job) = record;
    if (!memory->end(page, *slot, written.has_value())) {
      return resource_exhausted("the lent memory was taken back");
    }
    if (written) return {};
    return resource_exhausted(
        fmt::format("lent memory cannot be written: {}", written.error().message));
  }

  // The bytes are copied first. Nothing is taken from the copy that was not checked.
  Status load_page(const QueuedMove& job) {
    const std::int32_t page = job.page.page;
    const PageRecord record = record_of(job);
    if (record.name != job.page.name ||
        record.group != static_cast<std::uint32_t>(job.page.group)) {
      return not_found("the page holds another block");
    }
    const auto slot = memory->begin_load(page);
    if (!slot) return not_found("the lent memory was taken back");
    const Status read = slot->memory->read(slot->offset, buffer);
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

  std::unique_ptr<MoveQueue> queue;  // last: its thread uses the other members
};

LentTier::LentTier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LentTier::~LentTier() = default;

// `memory` is shared, as the header says.
Result<std::unique_ptr<LentTier>> LentTier::open(std::shared_ptr<LentMemory> memory,
                                                 std::uint64_t block_bytes, int save_rests) {
  CHECK(block_bytes > 0);
  ASSIGN_OR_RETURN(const HmacKey key, random_key());
  auto impl = std::make_unique<Impl>(std::move(memory), block_bytes, key);
  if (impl->records.empty()) {
    return invalid_argument(
        fmt::format("{} bytes have no room for a block of {}", impl->memory->most(), block_bytes));
  }
  impl->memory->use_pages(static_cast<std::int64_t>(impl->shape.page_bytes()));
  impl->queue = std::make_unique<MoveQueue>(
      [raw = impl.get()](const QueuedMove& move) {
        return move.source != nullptr ? raw->save_page(move) : raw->load_page(move);
      },
      save_rests);
  return std::unique_ptr<LentTier>(new LentTier(std::move(impl)));
}

std::int32_t LentTier::num_pages() const {
  return static_cast<std::int32_t>(impl_->records.size());
}

bool LentTier::accepts_saves() const { return impl_->memory->has_room(); }

void LentTier::save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) {
  CHECK(block.size() == impl_->block_bytes() && page.page >= 0 && page.page < num_pages());
  impl_->queue->add({id, page, nullptr, block.data()});
}

void LentTier::load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) {
  CHECK(block.size() == impl_->block_bytes() && page.page >= 0 && page.page < num_pages());
  impl_->queue->add({id, page, block.data(), nullptr});
}

void LentTier::touch(std::int32_t page) { impl_->memory->touch(page); }
void LentTier::erase(std::int32_t page) { impl_->memory->erase(page); }

void LentTier::poll(std::vector<TierMove>& ended) { impl_->queue->poll(ended); }
void LentTier::wait(Duration at_most) { impl_->queue->wait(at_most); }

// Nothing here lasts longer than the process.
Status LentTier::flush(Duration at_most) { return impl_->queue->flush(at_most); }

}  // namespace sluice
