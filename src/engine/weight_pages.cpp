#include "engine/weight_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::size_t kBytesPerCheck = std::size_t{64} << 20;  // of the free memory

}  // namespace

const Clock& WeightPages::real_clock() {
  static const SystemClock clock;
  return clock;
}

WeightPages::WeightPages(Options options, ThreadPool& pool, const Clock& clock)
    : options_(std::move(options)), pool_(pool), clock_(clock) {
  for (const std::span<const std::byte> mapping : options_.mappings) {
    bytes_ += mapping.size();
    movers_.emplace_back(mapping);
  }
  finished_ = bytes_ < options_.least_bytes;
}

std::size_t WeightPages::moved() const {
  std::size_t sum = 0;
  for (const LargePageMover& mover : movers_) sum += mover.moved();
  return sum;
}

void WeightPages::advance_after_step() {
  if (finished_ || start()) return;
  const TimePoint now = clock_.now();
  allowance_ = std::min(allowance_ + (now - last_) / kStepsPerMove, kLongestMove);
  last_ = now;
  move_for(allowance_);
  allowance_ -= last_ - now;
}

void WeightPages::advance_while_idle() {
  if (finished_ || start()) return;
  last_ = clock_.now();
  move_for(kIdleMove);
}

// Whether this is the first call.
bool WeightPages::start() {
  if (started_) return false;
  started_ = true;
  begin_ = last_ = clock_.now();
  why_ = obstacle();
  if (!why_.empty()) finish();
  return true;
}

// From last_ on.
void WeightPages::move_for(Duration time) {
  const TimePoint begin = last_;
  while (!finished_ && last_ - begin < time) {
    move_pages();
    last_ = clock_.now();
  }
}

void WeightPages::move_pages() {
  const auto mover = std::ranges::find_if(
      movers_, [](const LargePageMover& each) { return each.moved() < each.bytes(); });
  if (mover == movers_.end()) return finish();
  if (auto status = mover->move_next(pool_); !status) {
    why_ = status.error().message;
  } else if (moved() - checked_ >= kBytesPerCheck) {
    checked_ = moved();
    why_ = shortage(0);
  }
  if (!why_.empty()) finish();
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
           "ask for them";
  }
  return shortage(static_cast<std::int64_t>(bytes_) + options_.others);
}

void WeightPages::finish() {
  finished_ = true;
  if (why_.empty()) {
    log_info(fmt::format("weights: {} of {} MiB have moved into large pages in {:.1f} s",
                         moved() >> 20, bytes_ >> 20, to_seconds(clock_.now() - begin_)));
    return;
  }
  log_warning(fmt::format(
      "weights: {} of {} MiB stay in small pages, so steps may take longer: {} (--large-pages off "
      "does not try)",
      (bytes_ - moved()) >> 20, bytes_ >> 20, why_));
}

}  // namespace sluice
