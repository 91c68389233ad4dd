// MachineProfile: the cost of a step on this machine with one model: the measured points, the
// predictor fitted to them, the tile, and the identity of both. Stored in a JSON file
// (docs/token-budget.md has the format). Every field of a file is checked; errors name file and
// field.
// Values: plain; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scheduler/step_time_predictor.h"

namespace sluice {

// A step as it is measured: decodes with equal contexts, and at most one chunk of a prompt.
struct StepShape {
  std::int32_t decode_rows = 0;
  std::int32_t decode_context = 0;
  std::int32_t chunk_tokens = 0;  // 0: no chunk
  std::int32_t chunk_context = 0;

  std::int32_t tokens() const { return decode_rows + chunk_tokens; }
  StepFeatures features(std::int32_t window = 0) const;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

struct ProfilePoint {
  StepShape shape;
  double median_ns = 0;
  double spread_ns = 0;  // half the distance between the quartiles
  std::int32_t repeats = 0;
  bool held_out = false;  // not used to fit: the error is measured on these
};

// The model and machine for which the figures are valid. When either changes, they must be measured
// again.
struct ProfileIdentity {
  std::string model_digest;  // hex
  std::string dtype;         // of the weights
  std::string device;        // "cpu"
  std::string device_description;
  std::int32_t threads = 0;
  friend bool operator==(const ProfileIdentity&, const ProfileIdentity&) = default;
};

// Relative to the measured time; negative errors are predictions that were too short.
struct PredictionError {
  std::int32_t points = 0;
  double median = 0;         // of the absolute errors
  double p90 = 0;            // of the absolute errors
  double largest = 0;        // absolute
  double p90_too_short = 0;  // nine in ten predictions are too short by at most this
};

struct MachineProfile {
  ProfileIdentity identity;
  std::string model_name;          // for display
  std::int32_t max_num_seqs = 0;   // the limits of the measurement: rows of a step,
  std::int32_t max_model_len = 0;  // its contexts
  std::int32_t max_tokens = 0;     // and its tokens
  double seconds = 0;              // duration of the measurement
  std::int64_t free_bytes = 0;     // of the device's memory at the highest load measured
  std::vector<ProfilePoint> points;
  StepTimePredictor predictor;
  PredictionError error;
};

// Fits the predictor to the points that are not held out, and computes its error on the held-out
// points (on all points if none is held out). kInvalidArgument when there are too few points.
Status fit_profile(MachineProfile& profile);

// The predictor's error on the held-out points (on all points if none is held out).
PredictionError prediction_error(const MachineProfile& profile);

// The tile size in the points, or 1 if there is none. It is the smallest candidate size t for which
// one token more than 3 t (or than t, if 3 t was not measured) costs at least a quarter of a whole
// tile.
std::int32_t find_tile(const std::vector<ProfilePoint>& points);

std::string profile_to_json(const MachineProfile& profile);
// `file` is for messages. kUnsupported for a later version of the format.
Result<MachineProfile> parse_profile(std::string_view json, std::string_view file);

Result<MachineProfile> load_profile(const std::string& path);
// Creates folders as needed. The file is written atomically.
Status save_profile(const MachineProfile& profile, const std::string& path);

// The path of a profile unless the user names a file: in $XDG_CACHE_HOME/sluice/profiles or
// ~/.cache/sluice/profiles, named by its identity. Empty if neither XDG_CACHE_HOME nor HOME is set.
std::string default_profile_path(const ProfileIdentity& identity);

}  // namespace sluice
