#include "profile/profiler.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/rng.h"

namespace sluice {
namespace {

double as_ns(Duration d) { return static_cast<double>(d.count()); }

class Grid {
 public:
  explicit Grid(const StepRunner& runner) : runner_(runner) {}

  void add(const StepShape& shape, bool essential) {
    if (!runner_.can_run(shape)) return;
    const auto same = std::find_if(points_.begin(), points_.end(),
                                   [&](const GridPoint& p) { return p.shape == shape; });
    if (same == points_.end()) {
      points_.push_back({shape, essential});
    } else {
      same->essential = same->essential || essential;
    }
  }

  std::vector<GridPoint> take() { return std::move(points_); }

 private:
  const StepRunner& runner_;
  std::vector<GridPoint> points_;
};

void add_prompts(Grid& grid, std::int32_t most) {
  for (std::int32_t tokens = 1; tokens < most; tokens *= 2) {
    grid.add({0, 0, tokens, 0}, tokens == 1 || tokens == 16 || tokens == 64 || tokens == 256);
    if (tokens >= 64) grid.add({0, 0, tokens + tokens / 2, 0}, false);
  }
  grid.add({0, 0, most, 0}, false);
  // find_tile() needs these.
  for (const std::int32_t tile : {8, 16, 32, 64, 128, 256}) {
    for (const std::int32_t multiple : {1, 3}) {
      grid.add({0, 0, multiple * tile, 0}, false);
      grid.add({0, 0, multiple * tile + 1, 0}, false);
      grid.add({0, 0, (multiple + 1) * tile, 0}, false);
    }
  }
}

// Contexts from very short to the longest, each four times as long as the previous one.
std::vector<std::int32_t> contexts(std::int32_t longest) {
  std::vector<std::int32_t> result;
  for (std::int32_t context = 64; context < longest / 2; context *= 4) result.push_back(context);
  result.push_back(std::max(1, longest / 2));
  if (longest > 8) result.push_back(longest - longest / 8);
  return result;
}

}  // namespace

std::vector<GridPoint> profile_grid(const StepRunner& runner, const StepLimits& limits) {
  const KvOptions& kv = limits.kv;
  Grid grid(runner);
  add_prompts(grid, std::min(limits.max_tokens, kv.max_model_len));
  std::vector<std::int32_t> batches;
  for (std::int32_t rows = 1; rows < kv.max_num_seqs; rows *= 2) batches.push_back(rows);
  batches.push_back(kv.max_num_seqs);
  for (const std::int32_t rows : batches) {
    for (const std::int32_t context : contexts(kv.max_model_len)) {
      const bool corner = (rows == 1 || rows == 8) && (context == 64 || context >= 1024);
      grid.add({rows, context, 0, 0}, corner);
    }
  }
  for (const std::int32_t chunk : {16, 64, 128, 256, 512}) {
    for (const std::int32_t context : contexts(kv.max_model_len - chunk)) {
      grid.add({0, 0, chunk, context}, chunk == 64 && context >= 64);
      // The chunk's row takes a slot too.
      for (const std::int32_t rows : {4, std::min(32, kv.max_num_seqs - 1)}) {
        if (rows > 0) grid.add({rows, std::min(context, 4096), chunk, context}, false);
      }
    }
  }
  return grid.take();
}

namespace {

// One measurement: the samples of each point, and the expected time of a step.
class Measuring {
 public:
  Measuring(StepRunner& runner, const std::vector<GridPoint>& grid, const ProfilerOptions& options,
            const Clock& clock, ProfilerObserver observer)
      : runner_(runner),
        grid_(grid),
        options_(options),
        clock_(clock),
        observer_(observer),
        random_(options.seed),
        start_(clock.now()),
        samples_(grid.size()),
        held_out_(grid.size(), 0) {
    for (std::size_t i = 0; i < grid.size(); ++i) {
      held_out_[i] = !grid[i].essential && random_.below(5) == 0 ? 1 : 0;
    }
  }

  Status run() {
    RETURN_IF_ERROR(probe());
    for (std::int32_t round = 0; round < options_.repeats && !out_of_time(); ++round) {
      for (const std::size_t i : round_order(round == 0)) {
        RETURN_IF_ERROR(measure(i));
      }
    }
    return {};
  }

  std::vector<ProfilePoint> points() {
    std::vector<ProfilePoint> result;
    for (std::size_t i = 0; i < grid_.size(); ++i) {
      std::vector<double>& seen = samples_[i];
      if (seen.empty()) continue;
      std::sort(seen.begin(), seen.end());
      ProfilePoint point;
      point.shape = grid_[i].shape;
      point.median_ns = (seen[(seen.size() - 1) / 2] + seen[seen.size() / 2]) / 2;
      point.spread_ns = (seen[3 * (seen.size() - 1) / 4] - seen[(seen.size() - 1) / 4]) / 2;
      point.repeats = static_cast<std::int32_t>(seen.size());
      point.held_out = held_out_[i] != 0;
      result.push_back(point);
    }
    return result;
  }

 private:
  Duration elapsed() const { return clock_.now() - start_; }
  bool out_of_time() const { return elapsed() >= options_.time_limit; }

  // Runs prompts, each four times as long as the previous one, and discards the times. They warm
  // caches and graphs and give the expected time of longer steps.
  Status probe() {
    const double enough = longest_step_ns(true);
    for (std::int32_t tokens = 1; tokens <= 1024; tokens *= 4) {
      const StepShape shape{0, 0, tokens, 0};
      if (!runner_.can_run(shape) || expected_ns(shape) > enough) return {};
      RETURN_IF_ERROR(tell());
      ASSIGN_OR_RETURN(const Duration taken, runner_.run(shape));
      learn(shape, as_ns(taken));
    }
    return {};
  }

  std::vector<std::size_t> round_order(bool essential_first) {
    std::vector<std::size_t> order(grid_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.below(i)]);
    }
    if (essential_first) {
      std::stable_partition(order.begin(), order.end(),
                            [&](std::size_t i) { return grid_[i].essential; });
    }
    return order;
  }

  Status measure(std::size_t i) {
    const StepShape& shape = grid_[i].shape;
    const double left = as_ns(options_.time_limit - elapsed());
    const double expected = samples_[i].empty() ? expected_ns(shape) : samples_[i].back();
    if (left <= 0 || expected > std::min(left, longest_step_ns(grid_[i].essential))) return {};
    RETURN_IF_ERROR(tell());
    ASSIGN_OR_RETURN(const Duration taken, runner_.run(shape));
    const double ns = std::max(1.0, as_ns(taken));
    samples_[i].push_back(ns);
    measured_ += samples_[i].size() == 1 ? 1 : 0;
    ++runs_;
    learn(shape, ns);
    return {};
  }

  // One point must not use up the time of all others.
  double longest_step_ns(bool essential) const {
    return as_ns(options_.time_limit) / (essential ? 8 : 40);
  }

  // A rough estimate: the shortest step, plus the time per token of the longest prompt so far,
  // increased for the context as in the chunks so far. 0 before the first step.
  double expected_ns(const StepShape& shape) const {
    const double context_factor = 1 + context_share_ * shape.chunk_context;
    return shortest_ns_ + token_ns_ * shape.tokens() * context_factor;
  }
  void learn(const StepShape& shape, double ns) {
    if (shortest_ns_ == 0 || ns < shortest_ns_) shortest_ns_ = ns;
    if (shape.decode_rows > 0) return;
    if (shape.chunk_context == 0) {
      if (shape.chunk_tokens < longest_prompt_) return;
      longest_prompt_ = shape.chunk_tokens;
      token_ns_ = (ns - shortest_ns_) / shape.chunk_tokens;
      return;
    }
    const double alone = shortest_ns_ + token_ns_ * shape.chunk_tokens;
    context_share_ = std::max(context_share_, (ns / alone - 1) / shape.chunk_context);
  }

  Status tell() {
    const auto points = static_cast<std::int32_t>(grid_.size());
    if (observer_({elapsed(), points, measured_, runs_, points * options_.repeats})) return {};
    return Error{ErrorCode::kCancelled, "measuring was stopped"};
  }

  StepRunner& runner_;
  const std::vector<GridPoint>& grid_;
  const ProfilerOptions& options_;
  const Clock& clock_;
  ProfilerObserver observer_;
  SplitMix64 random_;
  TimePoint start_;
  std::vector<std::vector<double>> samples_;  // by point
  std::vector<std::uint8_t> held_out_;        // by point
  std::int32_t measured_ = 0;
  std::int32_t runs_ = 0;
  double shortest_ns_ = 0;
  std::int32_t longest_prompt_ = 0;
  double token_ns_ = 0;
  double context_share_ = 0;  // added share of a chunk's time per token of its context
};

}  // namespace

Result<std::vector<ProfilePoint>> measure_points(StepRunner& runner,
                                                 const std::vector<GridPoint>& grid,
                                                 const ProfilerOptions& options, const Clock& clock,
                                                 ProfilerObserver observer) {
  Measuring measuring(runner, grid, options, clock, observer);
  RETURN_IF_ERROR(measuring.run());
  return measuring.points();
}

}  // namespace sluice
