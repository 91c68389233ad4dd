#include "engine/weight_pages.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
constexpr int kPiecesPerCheck = 8;  // of the free memory
constexpr int kNice = 10;           // a tenth of a core that steps want too
constexpr std::chrono::milliseconds kPause{1};

}  // namespace

WeightPages::WeightPages(Options options) : options_(std::move(options)) {
  for (const std::span<const std::byte> mapping : options_.mappings) {
    bytes_ += mapping.size();
    movers_.emplace_back(mapping);
  }
  finished_ = bytes_ < options_.least_bytes;
}

WeightPages::~WeightPages() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

std::size_t WeightPages::placed() const {
  std::size_t sum = 0;
  for (const LargePageMover& mover : movers_) sum += mover.placed();
  return sum;
}

std::size_t WeightPages::copied() const {
  std::size_t sum = 0;
  for (const LargePageMover& mover : movers_) sum += mover.copied();
  return sum;
}

void WeightPages::advance() {
  if (finished_) return;
  const TimePoint now = SystemClock().now();
  const Duration step = started_ ? now - last_ : Duration::zero();
  last_ = now;
  advance(bytes_after(step));
}

std::size_t WeightPages::bytes_after(Duration step) {
  const auto rounds = std::clamp<std::int64_t>(step / kStepPerRound, 1, 64);
  return static_cast<std::size_t>(rounds) * kRoundBytes;
}

void WeightPages::advance(std::size_t most) {
  if (finished_) return;
  if (!started_) return start();
  const bool ended = copying_ended_.load(std::memory_order_acquire);
  for (LargePageMover& mover : movers_) {
    const std::size_t before = mover.placed();
    Status status = mover.place_next(most);
    most -= mover.placed() - before;
    if (!status) {
      stop_ = true;
      thread_.join();
      why_ = status.error().message;
      return finish();
    }
    if (most == 0 || mover.placed() < mover.copied()) return;
  }
  if (ended) finish();
}

void WeightPages::start() {
  started_ = true;
  begin_ = SystemClock().now();
  try {
    thread_ = std::thread([this] { copy_all(); });
  } catch (const std::system_error& error) {
    why_ = error.what();
    finish();
  }
}

std::string WeightPages::shortage(std::int64_t needed) const {
  const std::optional<std::int64_t> free = options_.free_bytes();
  if (!free) return "the free memory is not known";
  if (*free >= needed + kKeptFreeBytes) return {};
  return fmt::format(
      "{} MiB are free; large pages and KV memory would take {} MiB, and {} MiB are to stay free",
      *free >> 20, needed >> 20, kKeptFreeBytes >> 20);
}

std::string WeightPages::obstacle() const {
  const std::string rule = own_large_page_rule();
  if (rule.empty()) return "this kernel has no large pages";
  if (rule == "never") {
    return "/sys/kernel/mm/transparent_hugepage/enabled is \"never\"; \"madvise\" lets programs "
           "ask "
           "for them";
  }
  return shortage(static_cast<std::int64_t>(bytes_) + options_.others);
}

void WeightPages::copy_all() {
  // Linux keeps a priority for each thread.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice));
  int pieces = 0;
  why_ = obstacle();
  for (LargePageMover& mover : movers_) {
    while (mover.copied() < mover.bytes() && why_.empty() && !stop_) {
      if (copied() - placed() >= kAheadBytes) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      if (auto status = mover.copy_next(kPieceBytes); !status) why_ = status.error().message;
      if (++pieces % kPiecesPerCheck == 0 && why_.empty()) why_ = shortage(0);
    }
  }
  copying_ended_.store(true, std::memory_order_release);
}

void WeightPages::finish() {
  if (thread_.joinable()) thread_.join();
  finished_ = true;
  if (why_.empty()) {
    log_info(fmt::format("weights: {} of {} MiB have moved into large pages in {:.1f} s",
                         placed() >> 20, bytes_ >> 20, to_seconds(SystemClock().now() - begin_)));
    return;
  }
  log_warning(fmt::format(
      "weights: {} of {} MiB stay in small pages, so steps may take longer: {} (--large-pages off "
      "does not try)",
      (bytes_ - placed()) >> 20, bytes_ >> 20, why_));
}

}  // namespace sluice
