#include "offload/ram_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "offload/block_pack.h"
#include "offload/move_queue.h"
#include "offload/unit_store.h"

namespace sluice {
namespace {

// Page numbers for so many blocks as would fit with this gain; the code of block_pack.h cannot gain
// more on blocks that are not partly zero.
constexpr double kMostGain = 1.5;

// Small parts of a packed block, so that little of the last one is lost. Blocks that are not packed
// have one size.
std::int64_t unit_bytes_of(const RamTier::Options& options) {
  const auto block = static_cast<std::int64_t>(options.block_bytes);
  if (!options.packs) return block;
  const auto part = std::bit_ceil(static_cast<std::uint64_t>(block / 128 + 1));
  const std::int64_t least = options.max_bytes / (std::int64_t{1} << 30);  // at most 2^30 units
  return std::max(std::clamp<std::int64_t>(static_cast<std::int64_t>(part), 64, 1 << 16), least);
}

std::int32_t num_pages_of(const RamTier::Options& options) {
  const double blocks =
      static_cast<double>(options.max_bytes) / static_cast<double>(options.block_bytes);
  return static_cast<std::int32_t>(std::min(blocks * (options.packs ? kMostGain : 1.0), 0x1p30));
}

}  // namespace

struct RamTier::Impl {
  Impl(const Options& tier_options, std::unique_ptr<UnitStore> made)
      : options(tier_options),
        store(std::move(made)),
        labels(static_cast<std::size_t>(store->num_pages())),
        buffer(options.packs ? packed_limit(block_bytes()) : block_bytes()),
        judged_at(options.sample_blocks) {}

  std::size_t block_bytes() const { return static_cast<std::size_t>(options.block_bytes); }

  // ---------------------------------------------------------------- the thread

  Status save(const QueuedMove& move) {
    if (stopped.load(std::memory_order_relaxed)) return unavailable("the tier has stopped");
    std::span<const std::byte> bytes(move.source, block_bytes());
    if (options.packs) bytes = std::span(buffer).first(pack_block(bytes, buffer));
    labels[static_cast<std::size_t>(move.page.page)] = {move.page.name, move.page.group};
    dropped.clear();
    const Status kept = store->put(move.page.page, bytes, dropped);
    if (kept && options.packs) judge(bytes.size());
    note_lost();
    RETURN_IF_ERROR(kept);
    return stopped ? Status(unavailable("the tier has stopped")) : Status{};
  }

  // Counts a block that took so many bytes. The tier stops if packing gains too little.
  void judge(std::size_t packed) {
    const auto unit = static_cast<std::size_t>(store->unit_bytes());
    taken += static_cast<std::int64_t>((packed + unit - 1) / unit * unit);
    if (++counted < judged_at) return;
    const auto blocks = static_cast<double>(counted * static_cast<std::int64_t>(block_bytes()));
    const double gain = blocks / static_cast<double>(taken);
    if (gain < options.least_gain) {
      stopped = true;
      store->clear(dropped);
      log_warning(fmt::format(
          "KV in RAM: {} blocks were packed to 1/{:.2f} of their bytes, and less than 1/{:.2f} is "
          "not worth it; its memory is free again, and the tier is off until the next start",
          counted, gain, options.least_gain));
    } else if (!std::exchange(told, true)) {
      log_info(fmt::format("KV in RAM: {} blocks were packed to 1/{:.2f} of their bytes", counted,
                           gain));
    }
    counted = 0;
    taken = 0;
    judged_at = options.window_blocks;
  }

  void note_lost() {
    if (dropped.empty()) return;
    const std::lock_guard lock(lost_mutex);
    for (const std::int32_t page : dropped) {
      const Label& label = labels[static_cast<std::size_t>(page)];
      lost.push_back({.page = page, .group = label.group, .name = label.name, .tenant = {}});
    }
  }

  Status load(const QueuedMove& move) {
    const Label& label = labels[static_cast<std::size_t>(move.page.page)];
    if (label.name != move.page.name || label.group != move.page.group) {
      return not_found("the page holds another block");
    }
    const std::span<std::byte> block(move.target, block_bytes());
    ASSIGN_OR_RETURN(const std::size_t bytes, store->get(move.page.page, buffer));
    const auto read = std::span<const std::byte>(buffer).first(bytes);
    if (!options.packs) {
      std::ranges::copy(read, block.begin());
    } else if (!unpack_block(read, block)) {
      return invalid_argument(fmt::format("page {} cannot be unpacked", move.page.page));
    }
    return {};
  }

  const Options options;
  const std::unique_ptr<UnitStore> store;
  std::atomic<bool> stopped = false;

  // Used by the thread.
  struct Label {
    Hash128 name;
    std::int32_t group = 0;
  };
  std::vector<Label> labels;  // by page
  std::vector<std::byte> buffer;
  std::int64_t counted = 0;  // blocks since the last decision
  std::int64_t taken = 0;    // bytes of memory, by them
  std::int64_t judged_at = 0;
  bool told = false;
  std::vector<std::int32_t> dropped;  // by the save that runs

  std::mutex lost_mutex;
  std::vector<TierPage> lost;  // guarded by lost_mutex

  std::unique_ptr<MoveQueue> queue;  // last: its thread uses the other members
};

RamTier::RamTier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RamTier::~RamTier() = default;

Result<std::unique_ptr<RamTier>> RamTier::open(const Options& options) {
  CHECK(options.block_bytes > 0 && options.sample_blocks > 0 && options.window_blocks > 0);
  ASSIGN_OR_RETURN(auto store, UnitStore::create(options.max_bytes, unit_bytes_of(options),
                                                 num_pages_of(options)));
  auto impl = std::make_unique<Impl>(options, std::move(store));
  impl->queue = std::make_unique<MoveQueue>(
      [raw = impl.get()](const QueuedMove& move) {
        return move.source != nullptr ? raw->save(move) : raw->load(move);
      },
      options.save_rests);
  return std::unique_ptr<RamTier>(new RamTier(std::move(impl)));
}

std::int32_t RamTier::num_pages() const { return impl_->store->num_pages(); }

bool RamTier::accepts_saves() const { return !impl_->stopped; }

void RamTier::save(std::uint64_t id, const TierPage& page, std::span<const std::byte> block) {
  CHECK(block.size() == impl_->block_bytes() && page.page >= 0 && page.page < num_pages());
  impl_->queue->add({id, page, nullptr, block.data()});
}

void RamTier::load(std::uint64_t id, const TierPage& page, std::span<std::byte> block) {
  CHECK(block.size() == impl_->block_bytes() && page.page >= 0 && page.page < num_pages());
  impl_->queue->add({id, page, block.data(), nullptr});
}

void RamTier::keep(std::int32_t page) { impl_->store->keep(page); }
void RamTier::release(std::int32_t page) { impl_->store->release(page); }
void RamTier::touch(std::int32_t page) { impl_->store->touch(page); }
void RamTier::erase(std::int32_t page) { impl_->store->erase(page); }

void RamTier::poll(std::vector<TierMove>& ended) { impl_->queue->poll(ended); }

void RamTier::take_lost(std::vector<TierPage>& lost) {
  const std::lock_guard lock(impl_->lost_mutex);
  lost.insert(lost.end(), impl_->lost.begin(), impl_->lost.end());
  impl_->lost.clear();
}

void RamTier::wait(Duration at_most) { impl_->queue->wait(at_most); }
Status RamTier::flush(Duration at_most) { return impl_->queue->flush(at_most); }

std::int64_t RamTier::memory_bytes() const { return impl_->store->held_bytes(); }

}  // namespace sluice
