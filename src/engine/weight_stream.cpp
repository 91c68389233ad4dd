#include "engine/weight_stream.h"

#include <algorithm>
#include <system_error>

#include "base/check.h"
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
                           StreamedConversion conversion, ThreadPool& pool)
    : section_(std::move(section)), conversion_(std::move(conversion)), pool_(pool) {
  std::size_t next_piece = 0;
  std::size_t next_conversion = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    add_pieces(stages[i].derived, next_piece);
    add_conversions(i, next_conversion);
    for (const std::span<const std::byte> bytes : stages[i].mapped) add_mapped(bytes);
    stage_ends_.push_back(items_.size());
  }
  CHECK(next_conversion == conversion_.pieces.size());
  for (const Item& item : items_) bytes_ += item.bytes.size();
  states_ = std::make_unique<std::atomic<State>[]>(items_.size());
}

WeightStream::~WeightStream() { stop_reader(); }

void WeightStream::add_mapped(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kItemBytes));
    items_.push_back({part, nullptr, nullptr});
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
    items_.push_back({section_.bytes.subspan(begin, bytes), &section_.pieces[next_piece], nullptr});
  }
}

void WeightStream::add_conversions(std::size_t stage, std::size_t& next_piece) {
  const std::vector<DerivedPiece>& pieces = conversion_.pieces;
  for (; next_piece < pieces.size() && pieces[next_piece].stage == stage; ++next_piece) {
    items_.push_back({pieces[next_piece].source, nullptr, &pieces[next_piece]});
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
    if (is_for_steps(items_[i])) {
      touch_pages(items_[i].bytes);
    } else {
      bring_in(i);
    }
    // A conversion is slow anyway, and does not tell.
    from_disk = items_[i].conversion != nullptr || clock.now() - begin > kSlowItem;
  }
}

// Whether only the threads of a step may work on it.
bool WeightStream::is_for_steps(const Item& item) const {
  return item.conversion != nullptr && step_began_.load(std::memory_order_relaxed);
}

// Unless another thread has taken the item.
void WeightStream::bring_in(std::size_t item) {
  std::atomic<State>& state = states_[item];
  State expected = State::kWaiting;
  if (!state.compare_exchange_strong(expected, State::kTaken)) return;
  const Item& what = items_[item];
  if (what.conversion != nullptr) {
    convert(*what.conversion);
  } else if (what.expected == nullptr) {
    touch_pages(what.bytes);
  } else if (content_hash(what.bytes) != *what.expected) {
    damaged_ = true;
  }
  state.store(State::kDone);
  state.notify_all();
  ++done_;
}

void WeightStream::convert(const DerivedPiece& piece) {
  if (failed_) return;
  Status status = conversion_.convert(piece, *arena_);
  if (status) return;
  const std::lock_guard lock(mutex_);
  if (!failed_.exchange(true)) converted_ = std::move(status);
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
  step_began_ = true;
  bring_in_until(end);
  return damaged_ || failed_ ? this->end() : Status();
}

Status WeightStream::finish() {
  if (finished_) return status_;
  step_began_ = true;
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
  } else if (failed_) {
    status_ = converted_;
  } else if (conversion_.finish) {
    status_ = conversion_.finish(*arena_);
  } else if (section_.checked) {
    section_.checked();
  }
  section_.checked = nullptr;  // they hold the checkpoint
  section_.remake = nullptr;
  conversion_.convert = nullptr;
  conversion_.finish = nullptr;
  return status_;
}

}  // namespace sluice
