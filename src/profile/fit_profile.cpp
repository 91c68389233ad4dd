#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "profile/machine_profile.h"
#include "profile/nonnegative_fit.h"

namespace sluice {
namespace {

// The token counts at which the curve may bend.
constexpr std::array<std::int32_t, 14> kBends = {4,   8,   16,  32,   64,   128,  192,
                                                 256, 384, 512, 1024, 2048, 4096, 8192};
constexpr std::array<std::int32_t, 6> kTiles = {8, 16, 32, 64, 128, 256};

// Knots from 0 to the largest step measured, with a point between any two, so that every piece of
// the curve is supported by measurements.
std::vector<std::int32_t> choose_knots(const std::vector<ProfilePoint>& points) {
  std::int32_t largest = 0;
  for (const ProfilePoint& point : points) {
    if (!point.held_out) largest = std::max(largest, point.shape.tokens());
  }
  std::vector<std::int32_t> knots = {0};
  const auto measured_between = [&](std::int32_t low, std::int32_t high) {
    return std::any_of(points.begin(), points.end(), [&](const ProfilePoint& point) {
      const std::int32_t tokens = point.shape.tokens();
      return !point.held_out && tokens > low && tokens <= high;
    });
  };
  for (const std::int32_t bend : kBends) {
    if (bend < largest && measured_between(knots.back(), bend)) knots.push_back(bend);
  }
  knots.push_back(std::max(largest, 1));
  return knots;
}

// A step's features in the order of the coefficients: a constant, the length of each piece of the
// curve, and the rest as in StepTimePredictor.
std::vector<double> columns_of(const StepFeatures& f, const std::vector<std::int32_t>& knots,
                               std::int32_t tile) {
  std::vector<double> row = {1};
  for (std::size_t i = 1; i < knots.size(); ++i) {
    row.push_back(std::clamp(f.tokens, knots[i - 1], knots[i]) - knots[i - 1]);
  }
  row.push_back(tile > 1 ? (f.tokens + tile - 1) / tile : 0);
  row.push_back(f.chunk_tokens);
  row.push_back(f.rows);
  row.push_back(f.logit_rows > 0 ? 1 : 0);
  row.push_back(f.logit_rows);
  row.push_back(f.decode_context);
  row.push_back(f.chunk_work);
  row.push_back(f.chunk_context);
  return row;
}

StepTimePredictor predictor_of(const std::vector<double>& x,
                               const std::vector<std::int32_t>& knots) {
  StepTimePredictor p;
  double ns = x[0];
  for (std::size_t i = 0; i < knots.size(); ++i) {
    if (i > 0) ns += x[i] * (knots[i] - knots[i - 1]);
    p.knots[i] = {knots[i], ns};
  }
  p.num_knots = static_cast<std::int32_t>(knots.size());
  const double* rest = x.data() + knots.size();
  p.tile_ns = rest[0];
  p.chunk_token_ns = rest[1];
  p.row_ns = rest[2];
  p.logits_ns = rest[3];
  p.logit_row_ns = rest[4];
  p.decode_context_ns = rest[5];
  p.chunk_work_ns = rest[6];
  p.chunk_context_ns = rest[7];
  return p;
}

double quantile(std::vector<double>& values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
}

const ProfilePoint* find_prompt_step(const std::vector<ProfilePoint>& points, std::int32_t tokens) {
  const auto found = std::find_if(points.begin(), points.end(), [&](const ProfilePoint& point) {
    return point.shape == StepShape{0, 0, tokens, 0};
  });
  return found == points.end() ? nullptr : &*found;
}

// A difference of two points' medians above this value is hardly due to chance: 2.5 standard
// errors, if the runs were normally distributed.
double noise_between(const ProfilePoint& a, const ProfilePoint& b) {
  const auto error = [](const ProfilePoint& point) {
    return 1.86 * point.spread_ns / std::sqrt(std::max(point.repeats, 1));
  };
  return 2.5 * std::hypot(error(a), error(b));
}

// kNone if the points for a decision are missing, or if an apparent jump may be noise.
enum class TileSign : std::uint8_t { kNone, kJump, kSmooth };

TileSign look_for_jump(const std::vector<ProfilePoint>& points, std::int32_t full,
                       std::int32_t tile) {
  const ProfilePoint* at = find_prompt_step(points, full);
  const ProfilePoint* over = find_prompt_step(points, full + 1);
  const ProfilePoint* next = find_prompt_step(points, full + tile);
  if (at == nullptr || over == nullptr || next == nullptr) return TileSign::kNone;
  const double jump = over->median_ns - at->median_ns;
  const double whole = next->median_ns - at->median_ns;
  if (jump < 0.25 * whole) return TileSign::kSmooth;
  // One token of a tile cannot cost more than the whole tile; if it does, a point is an outlier.
  const bool odd = jump - whole > noise_between(*over, *next);
  return !odd && jump > noise_between(*at, *over) ? TileSign::kJump : TileSign::kNone;
}

}  // namespace

StepFeatures StepShape::features(std::int32_t window) const {
  StepFeatures f;
  f.tokens = decode_rows;
  f.rows = decode_rows;
  f.logit_rows = decode_rows;
  f.decode_context = decode_rows * StepFeatures::seen(decode_context, window);
  if (chunk_tokens > 0) f.add_chunk(chunk_context, chunk_tokens, false, window);
  return f;
}

PredictionError prediction_error(const MachineProfile& profile) {
  const bool any_held_out = std::any_of(profile.points.begin(), profile.points.end(),
                                        [](const ProfilePoint& p) { return p.held_out; });
  std::vector<double> absolute;
  std::vector<double> too_short;
  for (const ProfilePoint& point : profile.points) {
    if (point.held_out != any_held_out) continue;
    const StepFeatures features = point.shape.features(profile.predictor.window);
    const double error = profile.predictor.time_ns(features) / point.median_ns - 1;
    absolute.push_back(std::abs(error));
    too_short.push_back(-error);
  }
  PredictionError result;
  result.points = static_cast<std::int32_t>(absolute.size());
  result.median = quantile(absolute, 0.5);
  result.p90 = quantile(absolute, 0.9);
  result.largest = absolute.back();
  result.p90_too_short = std::max(0.0, quantile(too_short, 0.9));
  return result;
}

std::int32_t find_tile(const std::vector<ProfilePoint>& points) {
  for (const std::int32_t tile : kTiles) {
    // In a short step, memory time may hide the tiles, so the longer step decides.
    TileSign sign = look_for_jump(points, 3 * tile, tile);
    if (sign == TileSign::kNone) sign = look_for_jump(points, tile, tile);
    if (sign == TileSign::kJump) return tile;
  }
  return 1;
}

Status fit_profile(MachineProfile& profile) {
  const std::int32_t window = profile.predictor.window;
  const std::int32_t tile = find_tile(profile.points);
  const std::vector<std::int32_t> knots = choose_knots(profile.points);
  LeastSquares problem;
  bool decodes = false;
  bool chunks = false;
  for (const ProfilePoint& point : profile.points) {
    if (point.held_out) continue;
    decodes = decodes || point.shape.decode_rows > 0;
    chunks = chunks || point.shape.chunk_tokens > 1;
    std::vector<double> row = columns_of(point.shape.features(window), knots, tile);
    problem.columns = row.size();
    // Minimizes relative errors, so that the longest steps do not dominate.
    for (double& value : row) value /= point.median_ns;
    problem.add(row, 1);
  }
  if (!decodes || !chunks) {
    return invalid_argument(
        "too few steps were measured to tell decodes from prompts; give more time");
  }
  profile.predictor = predictor_of(fit_nonnegative(problem), knots);
  profile.predictor.window = window;
  profile.predictor.tile = tile;
  if (profile.predictor.time_ns(StepShape{1, 1, 0, 0}.features(window)) <= 0) {
    return invalid_argument("the measured times fit no law: a step would take no time");
  }
  profile.error = prediction_error(profile);
  return {};
}

}  // namespace sluice
