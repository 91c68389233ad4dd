#include "engine/weight_stream.h"

#include <algorithm>
#include <system_error>

#include "base/content_hash.h"
#include "base/log.h"
#include "base/page_in.h"
#include "snapshot/snapshot_format.h"

namespace sluice {
namespace {

constexpr std::size_t kItemBytes = kSnapshotPieceBytes;
// Reads that the system works on while an item is mapped: enough for a fast disk's queue.
constexpr std::size_t kItemsAhead = 8;
// An item of memory takes a fraction of that, hashed or not.
constexpr Duration kSlowItem = std::chrono::milliseconds(2);

}  // namespace

WeightStream::WeightStream(std::span<const WeightStage> stages, StreamedSection section,
                           ThreadPool& pool)
    : section_(std::move(section)), pool_(pool) {
  std::size_t next_piece = 0;
  for (const WeightStage& stage : stages) {
    add_pieces(stage.derived, next_piece);
    for (const std::span<const std::byte> bytes : stage.mapped) add_mapped(bytes);
    stage_ends_.push_back(items_.size());
  }
  for (const Item& item : items_) bytes_ += item.bytes.size();
  states_ = std::make_unique<std::atomic<State>[]>(items_.size());
}

WeightStream::~WeightStream() { stop_reader(); }

void WeightStream::add_mapped(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kItemBytes));
    items_.push_back({part, nullptr});
    bytes = bytes.subspan(part.size());
  }
}

// The pieces up to the end of a stage that no earlier stage has.
void WeightStream::add_pieces(const WeightsRange& derived, std::size_t& next_piece) {
  if (section_.bytes.empty() || derived.bytes == 0) return;
  const std::size_t end = derived.offset + derived.bytes - section_.region_offset;
  for (; next_piece < section_.pieces.size() && next_piece * kItemBytes < end; ++next_piece) {
    const std::size_t begin = next_piece * kItemBytes;
    const std::size_t bytes = std::min(kItemBytes, section_.bytes.size() - begin);
    items_.push_back({section_.bytes.subspan(begin, bytes), &section_.pieces[next_piece]});
  }
}

void WeightStream::start(Arena& arena) {
  arena_ = &arena;
  try {
    reader_ = std::thread([this] { read_all(); });
  } catch (const std::system_error& error) {
    log_warning(std::string("weights are not read ahead: ") + error.what());
  }
}

void WeightStream::read_all() {
  const SystemClock clock;
  bool from_disk = true;  // the last item came from there; else asking the system is only a cost
  std::size_t requested = 0;
  for (std::size_t i = 0; i < items_.size() && !stop_.load(std::memory_order_relaxed); ++i) {
    const TimePoint begin = clock.now();
    requested = std::max(requested, i);
    while (from_disk && requested < std::min(i + kItemsAhead, items_.size())) {
      start_paging_in(items_[requested++].bytes);
    }
    bring_in(i);
    from_disk = clock.now() - begin > kSlowItem;
  }
}

// Unless another thread has taken the item.
void WeightStream::bring_in(std::size_t item) {
  std::atomic<State>& state = states_[item];
  State expected = State::kWaiting;
  if (!state.compare_exchange_strong(expected, State::kTaken)) return;
  const Item& what = items_[item];
  if (what.expected == nullptr) {
    touch_pages(what.bytes);
  } else if (content_hash(what.bytes) != *what.expected) {
    damaged_ = true;
  }
  state.store(State::kDone);
  state.notify_all();
  ++done_;
}

void WeightStream::bring_in_until(std::size_t end) {
  const std::size_t begin = passed_;
  pool_.parallel_for(static_cast<int>(end - begin),
                     [&](int task) { bring_in(begin + static_cast<std::size_t>(task)); });
  for (; passed_ < end; ++passed_) {
    while (states_[passed_].load() != State::kDone) states_[passed_].wait(State::kTaken);
  }
}

Status WeightStream::wait(std::size_t stage) {
  const std::size_t end = stage_ends_[stage];
  if (finished_ || end <= passed_) return status_;
  bring_in_until(end);
  return damaged_ ? this->end() : Status();
}

Status WeightStream::finish() {
  if (finished_) return status_;
  bring_in_until(items_.size());
  return end();
}

Status WeightStream::poll() {
  if (finished_ || done_ < items_.size()) return status_;
  return finish();
}

void WeightStream::stop_reader() {
  stop_ = true;
  if (reader_.joinable()) reader_.join();
}

Status WeightStream::end() {
  stop_reader();
  finished_ = true;
  passed_ = items_.size();
  if (damaged_) {
    remade_ = true;
    status_ = section_.remake(*arena_);
  } else if (section_.checked) {
    section_.checked();
  }
  section_.checked = nullptr;  // they hold the checkpoint
  section_.remake = nullptr;
  return status_;
}

}  // namespace sluice
