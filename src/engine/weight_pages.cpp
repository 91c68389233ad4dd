#include "engine/weight_pages.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/large_pages.h"
#include "base/log.h"

namespace sluice {
namespace {

// A thread that reads a piece waits for at most the time of its move, without the copy.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
constexpr int kPiecesPerCheck = 8;  // of the free memory
constexpr int kNice = 10;           // a tenth of a core that steps want too

}  // namespace

WeightPages::WeightPages(Options options) : options_(std::move(options)) {
  for (const auto& mapping : options_.mappings) bytes_ += mapping.size();
}

WeightPages::~WeightPages() {
  stop_ = true;
  if (mover_.joinable()) mover_.join();
}

void WeightPages::start() {
  if (started_ || bytes_ < options_.least_bytes) return;
  started_ = true;
  try {
    mover_ = std::thread([this] { move_all(); });
  } catch (const std::system_error& error) {
    log_warning(std::string("weights stay in small pages: ") + error.what());
  }
}

const WeightPages::Outcome& WeightPages::wait() {
  if (mover_.joinable()) mover_.join();
  return outcome_;
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

void WeightPages::move_all() {
  // Linux keeps a priority for each thread.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice));
  const SystemClock clock;
  const TimePoint begin = clock.now();
  Outcome& done = outcome_;
  int pieces = 0;
  done.why = obstacle();
  for (const std::span<const std::byte> mapping : options_.mappings) {
    LargePageMover mover(mapping);
    while (mover.left() > 0 && done.why.empty()) {
      if (stop_) return;
      const std::size_t before = mover.left();
      if (auto status = mover.move_next(kPieceBytes); !status) done.why = status.error().message;
      done.moved += before - mover.left();
      if (++pieces % kPiecesPerCheck == 0 && done.why.empty()) done.why = shortage(0);
    }
    done.copied += mover.copied();
  }
  log_outcome(to_seconds(clock.now() - begin));
}

void WeightPages::log_outcome(double seconds) const {
  if (outcome_.why.empty()) {
    log_info(fmt::format(
        "weights: {} of {} MiB have moved into large pages, {} MiB of them by a copy; {:.1f} s "
        "beside the steps",
        outcome_.moved >> 20, bytes_ >> 20, outcome_.copied >> 20, seconds));
    return;
  }
  log_warning(fmt::format(
      "weights: {} of {} MiB stay in small pages, so steps may take longer: {} (--large-pages off "
      "does not try)",
      (bytes_ - outcome_.moved) >> 20, bytes_ >> 20, outcome_.why));
}

}  // namespace sluice
