#include "apps/machine_limits.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/large_pages.h"
#include "base/thread_pool.h"

namespace sluice {
namespace {

constexpr double kGiga = 1e9;

double seconds_of(const Clock& clock, FunctionRef<void()> work) {
  const TimePoint begin = clock.now();
  work();
  return std::max(1e-9, to_seconds(clock.now() - begin));
}

// 0 if there is no memory to read.
double measure_read(ThreadPool& pool, const LimitsOptions& options, const Clock& clock) {
  constexpr int kPieces = 64;
  const auto piece = static_cast<std::size_t>(options.read_bytes) / kPieces / 256 * 256;
  // In large pages, as weights are (engine/weight_pages.h).
  constexpr auto kLarge = static_cast<std::size_t>(kLargePageBytes);
  const std::size_t bytes = (piece * kPieces + kLarge - 1) / kLarge * kLarge;
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kLarge, bytes)), &std::free);
  if (memory == nullptr) return 0;
  static_cast<void>(::madvise(memory.get(), bytes, MADV_HUGEPAGE));
  std::memset(memory.get(), 1, piece * kPieces);
  std::vector<std::uint64_t> sums(kPieces);
  double best = 0;
  for (int i = 0; i < options.repetitions; ++i) {
    const double seconds = seconds_of(clock, [&] {
      pool.parallel_for(kPieces, [&](int p) {
        const auto index = static_cast<std::size_t>(p);
        sums[index] = read_memory(memory.get() + index * piece, piece);
      });
    });
    best = std::max(best, static_cast<double>(piece * kPieces) / seconds);
  }
  // Every piece has the same bytes, so the reads cannot have been left out.
  CHECK(std::count(sums.begin(), sums.end(), sums.front()) == kPieces);
  return best;
}

double measure_unit(MathUnit unit, ThreadPool& pool, const LimitsOptions& options,
                    const Clock& clock) {
  if (!has_math_unit(unit)) return 0;
  std::vector<double> operations(static_cast<std::size_t>(options.threads));
  const auto run = [&](std::int64_t rounds) {
    return seconds_of(clock, [&] {
      pool.parallel_for(options.threads, [&](int thread) {
        operations[static_cast<std::size_t>(thread)] = run_math_unit(unit, rounds);
      });
    });
  };
  constexpr std::int64_t kFirstRounds = 20000;  // also wakes the unit and the threads
  run(kFirstRounds);
  const double each = run(kFirstRounds) / kFirstRounds;
  const auto rounds = std::max<std::int64_t>(
      kFirstRounds, static_cast<std::int64_t>(to_seconds(options.length) / each));
  double best = 0;
  for (int i = 0; i < options.repetitions; ++i) {
    const double seconds = run(rounds);
    double sum = 0;
    for (const double count : operations) sum += count;
    best = std::max(best, sum / seconds);
  }
  return best;
}

}  // namespace

MachineLimits measure_limits(const LimitsOptions& options, const Clock& clock) {
  MachineLimits limits;
  limits.threads = options.threads;
  ThreadPool pool(options.threads);
  limits.read = measure_read(pool, options, clock);
  for (const MathUnit unit : kMathUnits) {
    limits.peaks[static_cast<std::size_t>(unit)] = measure_unit(unit, pool, options, clock);
  }
  return limits;
}

std::string limits_text(const MachineLimits& limits) {
  std::string text = fmt::format("read {:.1f} GB/s;", limits.read / kGiga);
  const char* before = " ";
  for (const MathUnit unit : kMathUnits) {
    if (limits.peak(unit) == 0) continue;
    text += fmt::format("{}{} {:.0f}", before, math_unit_name(unit), limits.peak(unit) / kGiga);
    before = ", ";
  }
  return text + " Gop/s";
}

std::string limits_json(const MachineLimits& limits) {
  std::string json =
      fmt::format(R"({{"threads":{},"read_gb_s":{:.1f})", limits.threads, limits.read / kGiga);
  for (const MathUnit unit : kMathUnits) {
    if (limits.peak(unit) == 0) continue;
    json += fmt::format(R"(,"{}_gop_s":{:.1f})", math_unit_name(unit), limits.peak(unit) / kGiga);
  }
  return json + "}";
}

}  // namespace sluice
