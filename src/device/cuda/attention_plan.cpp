#include "device/cuda/attention_plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "device/cuda/launch_shapes.h"

namespace sluice::cuda {
namespace {

constexpr std::int64_t kMaxPartialBytes = std::int64_t{64} << 20;
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kTaskCost = 4;  // of starting a task: several dependent reads
constexpr std::size_t kCosts = 1024;   // longer tasks count as equal

std::int64_t round_up(std::int64_t n) { return divide_up(n, kAlignment) * kAlignment; }

std::int32_t heads_per_group(const AttentionPlanLimits& limits) {
  CHECK(limits.num_kv_heads > 0 && limits.num_heads % limits.num_kv_heads == 0);
  return limits.num_heads / limits.num_kv_heads;
}

std::int64_t bytes_per_partial_row(const AttentionPlanLimits& limits) {
  return (std::int64_t{limits.head_dim} + 2) * static_cast<std::int64_t>(sizeof(float));
}

// The capacity of a plan's arrays.
struct Room {
  std::int64_t tasks = 0;
  std::int64_t counters = 0;
  std::int64_t partial_rows = 0;
};

Room room_for(const AttentionPlanLimits& limits) {
  const std::int32_t ratio = heads_per_group(limits);
  const std::int64_t rows = std::min(limits.max_seqs, limits.max_tokens);
  // Each row fills wide tiles, plus one that is not full.
  const std::int64_t tiles = rows + std::int64_t{limits.max_tokens} * ratio / kWideRows;
  std::int64_t spans = divide_up(limits.max_positions, kSpanKeys);
  if (limits.window > 0) {  // a tile sees its window and the keys of its later tokens
    spans = std::min(spans, (std::int64_t{limits.window} + kWideRows) / kSpanKeys + 2);
  }
  Room room;
  if (spans > 1) {
    room.partial_rows = std::min(std::int64_t{limits.max_tokens} * limits.num_heads * spans,
                                 kMaxPartialBytes / bytes_per_partial_row(limits));
    room.counters = tiles * limits.num_kv_heads;
  }
  room.tasks = tiles + std::min(tiles * spans, room.partial_rows / limits.num_kv_heads);
  return room;
}

// The offsets of a plan's parts: header, tasks, counters, partial sums, their weights.
struct Places {
  std::int64_t tasks = 0;
  std::int64_t counters = 0;
  std::int64_t plan_end = 0;
};

Places places_for(std::int64_t tasks, std::int64_t counters) {
  Places places;
  places.tasks = round_up(sizeof(AttentionWork));
  places.counters =
      round_up(places.tasks + tasks * static_cast<std::int64_t>(sizeof(AttentionTask)));
  places.plan_end =
      round_up(places.counters + counters * static_cast<std::int64_t>(sizeof(std::int32_t)));
  return places;
}

// A tile of the step, before it is cut.
struct Tile {
  AttentionTask task;      // covers all its spans
  std::int64_t steps = 0;  // of keys
  std::int64_t cost = 0;   // estimated time, in steps of a wide tile
  bool is_cut(std::int64_t limit) const { return task.tile_spans > 1 && cost > limit; }
};

// A step of a narrow tile, which only reads keys, takes about twice as long as a step's products in
// a wide one.
std::int64_t cost_of(const AttentionTask& task, std::int64_t steps) {
  return task.num_pairs <= kWarpRows ? 2 * steps : steps;
}

// The number of steps in `spans` of a tile's spans.
std::int64_t steps_within(const Tile& tile, std::int32_t first_step, std::int32_t span) {
  constexpr std::int32_t kSteps = kSpanKeys / kStepKeys;
  const std::int64_t end = std::min<std::int64_t>(first_step + tile.steps, (span + 1) * kSteps);
  return end - std::max<std::int64_t>(first_step, std::int64_t{span} * kSteps);
}

// The first key that a query at `position` sees.
std::int32_t first_seen(const AttentionPlanLimits& limits, std::int32_t position) {
  return limits.window > 0 ? std::max(0, position - limits.window + 1) : 0;
}

// Calls f(tile, first step) for each tile, in order of rows and tokens.
template <class Function>
void for_each_tile(const AttentionPlanParams& p, Function f) {
  const std::int32_t ratio = heads_per_group(p.limits);
  for (std::int32_t row = 0; row < p.num_seqs; ++row) {
    const std::int32_t query_len = p.cu_seqlens_q[row + 1] - p.cu_seqlens_q[row];
    const std::int32_t context = p.seq_lens[row] - query_len;
    CHECK(query_len >= 0 && context >= 0 && p.seq_lens[row] <= p.limits.max_positions);
    const std::int32_t pairs = query_len * ratio;
    for (std::int32_t first = 0; first < pairs; first += kWideRows) {
      Tile tile;
      AttentionTask& task = tile.task;
      task.row = row;
      task.first_token = p.cu_seqlens_q[row];
      task.first_position = context;
      task.first_pair = first;
      task.num_pairs = std::min(kWideRows, pairs - first);
      const std::int32_t last = context + (first + task.num_pairs - 1) / ratio;
      const std::int32_t lowest = context + first / ratio;
      const std::int32_t begin = first_seen(p.limits, lowest);
      task.first_span = task.tile_first_span = begin / kSpanKeys;
      task.num_spans = task.tile_spans = last / kSpanKeys - begin / kSpanKeys + 1;
      tile.steps = last / kStepKeys - begin / kStepKeys + 1;
      tile.cost = cost_of(task, tile.steps);
      f(tile, begin / kStepKeys);
    }
  }
}

// Tasks by cost, the longest first.
using Buckets = std::array<std::int32_t, kCosts>;

std::size_t bucket_of(std::int64_t cost) {
  return kCosts - 1 - std::min(static_cast<std::size_t>(cost), kCosts - 1);
}

// Calls f(task, cost) for each task of the plan. Cut tiles get their counters and partial rows in
// order.
template <class Function>
void for_each_task(const AttentionPlanParams& p, std::int64_t limit, Function f) {
  std::int32_t counters = 0;
  std::int32_t partial_rows = 0;
  for_each_tile(p, [&](const Tile& tile, std::int32_t first_step) {
    if (!tile.is_cut(limit)) return f(tile.task, tile.cost);
    AttentionTask task = tile.task;
    task.num_spans = 1;
    task.first_counter = counters;
    task.first_partial = partial_rows;
    counters += p.limits.num_kv_heads;
    partial_rows += task.tile_spans * task.num_pairs * p.limits.num_kv_heads;
    for (std::int32_t span = 0; span < task.tile_spans; ++span) {
      task.first_span = task.tile_first_span + span;
      f(task, cost_of(task, steps_within(tile, first_step, task.first_span)));
    }
  });
}

// A lower bound of the time, in units of cost. It is the largest of an even share of all work and,
// for each task length, the work of the block that gets the most tasks of at least that length.
std::int64_t estimated_time(const AttentionPlanParams& p, std::int64_t limit, std::int32_t blocks) {
  Buckets buckets = {};
  std::int64_t total = 0;
  std::int64_t longest = 0;
  for_each_task(p, limit, [&](const AttentionTask&, std::int64_t cost) {
    ++buckets[bucket_of(cost)];
    total += cost + kTaskCost;
    longest = std::max(longest, cost + kTaskCost);
  });
  std::int64_t time = std::max(longest, total * p.limits.num_kv_heads / blocks);
  std::int64_t tasks = 0;
  for (std::size_t i = 0; i < kCosts; ++i) {
    if (buckets[i] == 0) continue;
    tasks += std::int64_t{buckets[i]} * p.limits.num_kv_heads;
    const auto cost = static_cast<std::int64_t>(kCosts - 1 - i);
    time = std::max(time, divide_up(tasks, blocks) * (cost + kTaskCost));
  }
  return time;
}

std::int64_t partial_rows_of(const AttentionPlanParams& p, std::int64_t limit) {
  std::int64_t rows = 0;
  for_each_tile(p, [&](const Tile& tile, std::int32_t) {
    if (tile.is_cut(limit)) rows += std::int64_t{tile.task.tile_spans} * tile.task.num_pairs;
  });
  return rows * p.limits.num_kv_heads;
}

// Chooses the cost above which tiles are cut. The candidates are: no cuts, a block's share of the
// step, half and a quarter of that share. Chooses the fastest one whose partial results fit.
std::int64_t cut_limit(const AttentionPlanParams& p, std::int32_t blocks, const Room& room) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t total = 0;
  for_each_tile(p, [&](const Tile& tile, std::int32_t) { total += tile.cost; });
  const std::int64_t share = total * p.limits.num_kv_heads / blocks;
  std::int64_t best = kNone;
  std::int64_t best_time = estimated_time(p, kNone, blocks);
  for (const std::int64_t parts : {1, 2, 4}) {
    std::int64_t limit = share / parts;
    while (partial_rows_of(p, limit) > room.partial_rows) limit = 2 * limit + 1;
    const std::int64_t time = estimated_time(p, limit, blocks);
    if (time >= best_time) continue;
    best = limit;
    best_time = time;
  }
  return best;
}

}  // namespace

AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits) {
  const Room room = room_for(limits);
  const Places places = places_for(room.tasks, room.counters);
  return {places.plan_end,
          round_up(places.plan_end + room.partial_rows * bytes_per_partial_row(limits))};
}

std::int64_t write_attention_plan(const AttentionPlanParams& p, std::int32_t blocks) {
  CHECK(blocks > 0 && p.num_seqs <= p.limits.max_seqs);
  CHECK(p.num_seqs == 0 || p.cu_seqlens_q[p.num_seqs] <= p.limits.max_tokens);
  const Room room = room_for(p.limits);
  const std::int64_t limit = cut_limit(p, blocks, room);
  // Counting sort: there may be thousands of tasks, and every step waits for this.
  Buckets next = {};
  std::int32_t num_tasks = 0;
  std::int32_t num_counters = 0;
  for_each_task(p, limit, [&](const AttentionTask& task, std::int64_t cost) {
    ++next[bucket_of(cost)];
    ++num_tasks;
    if (task.first_counter >= 0) num_counters = task.first_counter + p.limits.num_kv_heads;
  });
  CHECK(num_tasks <= room.tasks && num_counters <= room.counters);
  std::int32_t before = 0;
  for (std::int32_t& count : next) before += std::exchange(count, before);

  const Places places = places_for(num_tasks, num_counters);
  const std::int64_t sums = places_for(room.tasks, room.counters).plan_end;
  auto* base = static_cast<std::byte*>(p.plan);
  AttentionWork work;
  work.num_tasks = num_tasks;
  work.tasks_offset = places.tasks;
  work.counters_offset = places.counters;
  work.sums_offset = sums;
  work.weights_offset =
      sums + room.partial_rows * p.limits.head_dim * static_cast<std::int64_t>(sizeof(float));
  std::memcpy(base, &work, sizeof(work));
  auto* tasks = reinterpret_cast<AttentionTask*>(base + places.tasks);
  for_each_task(p, limit, [&](const AttentionTask& task, std::int64_t cost) {
    tasks[next[bucket_of(cost)]++] = task;
  });
  std::memset(base + places.counters, 0,
              static_cast<std::size_t>(num_counters) * sizeof(std::int32_t));
  return places.plan_end;
}

Work attention_work(const AttentionPlanParams& p) {
  const std::int32_t ratio = heads_per_group(p.limits);
  std::int64_t steps = 0;  // of a warp
  for_each_tile(p, [&](const Tile& tile, std::int32_t) {
    const AttentionTask& task = tile.task;
    if (task.num_pairs <= kWarpRows) {
      steps += tile.steps;
      return;
    }
    for (std::int32_t first = 0; first < task.num_pairs; first += kWarpRows) {
      const std::int32_t end = std::min(first + kWarpRows, task.num_pairs);
      const std::int32_t lowest = task.first_position + (task.first_pair + first) / ratio;
      const std::int32_t last = task.first_position + (task.first_pair + end - 1) / ratio;
      const std::int32_t begin = first_seen(p.limits, lowest);
      steps += last / kStepKeys - begin / kStepKeys + 1;
    }
  });
  const std::int64_t pairs_of_step = std::int64_t{kWarpRows} * kStepKeys;
  return {attention_pairs(p), steps * pairs_of_step * p.limits.num_kv_heads};
}

}  // namespace sluice::cuda
