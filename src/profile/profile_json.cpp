// Reads and writes the file format of a machine profile.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/json_depth.h"
#include "profile/machine_profile.h"

namespace sluice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kFormat = "sluice-machine-profile";
constexpr std::int64_t kVersion = 1;
constexpr std::size_t kMaxPoints = 10000;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 27;
constexpr std::size_t kMaxText = 512;
constexpr double kMaxNs = 1e15;  // 11 days
constexpr double kMaxRelative = 1e9;

// Reads fields of one object; keeps the first error.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("", "must be an object");
  }

  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) {
    const json* value = find(name);
    if (value == nullptr) return low;
    const bool whole = value->is_number_integer() &&
                       (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX);
    if (whole && value->get<std::int64_t>() >= low && value->get<std::int64_t>() <= high) {
      return value->get<std::int64_t>();
    }
    fail(name, fmt::format("must be a whole number between {} and {}", low, high));
    return low;
  }
  std::int32_t count(const char* name, std::int64_t low, std::int64_t high = kMaxCount) {
    return static_cast<std::int32_t>(integer(name, low, high));
  }
  double number(const char* name, double low, double high) {
    const json* value = find(name);
    if (value == nullptr) return low;
    if (value->is_number()) {
      const auto result = value->get<double>();
      if (result >= low && result <= high) return result;
    }
    fail(name, fmt::format("must be a number between {:g} and {:g}", low, high));
    return low;
  }
  double ns(const char* name) { return number(name, 0, kMaxNs); }
  std::string text(const char* name) {
    const json* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string() && value->get_ref<const std::string&>().size() <= kMaxText) {
      return value->get<std::string>();
    }
    fail(name, fmt::format("must be a string of at most {} bytes", kMaxText));
    return {};
  }
  bool flag(const char* name) {
    const json* value = find(name);
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    if (value != nullptr) fail(name, "must be true or false");
    return false;
  }
  const json& member(const char* name, bool array) {
    static const json kNoObject = json::object();
    static const json kNoArray = json::array();
    const json* value = find(name);
    if (value != nullptr && (array ? value->is_array() : value->is_object())) return *value;
    if (value != nullptr) fail(name, array ? "must be an array" : "must be an object");
    return array ? kNoArray : kNoObject;
  }

  void fail(std::string_view name, std::string_view message) {
    if (!error_) error_ = invalid_argument(fmt::format("{}{} {}", where_, name, message));
  }
  // Adopts the error of a nested object.
  void join(const Fields& inner) {
    if (!error_) error_ = inner.error_;
  }
  Status status() const {
    if (error_) return *error_;
    return {};
  }

 private:
  const json* find(const char* name) {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    fail(name, "is missing");
    return nullptr;
  }

  const json& object_;
  std::string where_;
  std::optional<Error> error_;
};

ProfileIdentity read_identity(Fields& root, const std::string& file) {
  Fields f(root.member("identity", false), file + ": identity.");
  ProfileIdentity identity;
  identity.model_digest = f.text("model_digest");
  identity.dtype = f.text("dtype");
  identity.device = f.text("device");
  identity.device_description = f.text("device_description");
  identity.threads = f.count("threads", 1, 1 << 20);
  root.join(f);
  return identity;
}

ProfilePoint read_point(const json& object, const MachineProfile& profile, Fields& root,
                        const std::string& where) {
  Fields f(object, where);
  ProfilePoint point;
  StepShape& shape = point.shape;
  shape.decode_rows = f.count("decode_rows", 0, profile.max_num_seqs);
  shape.decode_context = f.count("decode_context", 0, profile.max_model_len);
  shape.chunk_tokens = f.count("chunk_tokens", 0, profile.max_tokens);
  shape.chunk_context = f.count("chunk_context", 0, profile.max_model_len);
  point.median_ns = f.number("median_ns", 1, kMaxNs);
  point.spread_ns = f.ns("spread_ns");
  point.repeats = f.count("repeats", 1);
  point.held_out = f.flag("held_out");
  if (shape.tokens() < 1 || shape.tokens() > profile.max_tokens) {
    f.fail("chunk_tokens", "and decode_rows together must be between 1 and max_tokens");
  }
  root.join(f);
  return point;
}

void read_knots(const json& knots, StepTimePredictor& p, Fields& f, const std::string& where) {
  if (knots.size() < 2 || knots.size() > StepTimePredictor::kMaxKnots) {
    f.fail("knots", fmt::format("must have 2 to {} entries", StepTimePredictor::kMaxKnots));
    return;
  }
  p.num_knots = static_cast<std::int32_t>(knots.size());
  for (std::size_t i = 0; i < knots.size(); ++i) {
    Fields knot(knots[i], fmt::format("{}knots[{}].", where, i));
    p.knots[i].tokens = knot.count("tokens", 0);
    p.knots[i].ns = knot.ns("ns");
    f.join(knot);
    const bool rises =
        i == 0 ? p.knots[0].tokens == 0
               : p.knots[i].tokens > p.knots[i - 1].tokens && p.knots[i].ns >= p.knots[i - 1].ns;
    if (!rises) f.fail("knots", "must begin at 0 tokens, grow in tokens and never fall in time");
  }
}

StepTimePredictor read_predictor(Fields& root, const std::string& file) {
  const std::string where = file + ": predictor.";
  Fields f(root.member("predictor", false), where);
  StepTimePredictor p;
  read_knots(f.member("knots", true), p, f, where);
  p.tile = f.count("tile", 1, 1 << 20);
  p.tile_ns = f.ns("tile_ns");
  p.chunk_token_ns = f.ns("chunk_token_ns");
  p.row_ns = f.ns("row_ns");
  p.logits_ns = f.ns("logits_ns");
  p.logit_row_ns = f.ns("logit_row_ns");
  p.decode_context_ns = f.ns("decode_context_ns");
  p.chunk_work_ns = f.ns("chunk_work_ns");
  p.chunk_context_ns = f.ns("chunk_context_ns");
  p.window = f.count("window", 0);
  root.join(f);
  return p;
}

PredictionError read_error(Fields& root, const std::string& file) {
  Fields f(root.member("error", false), file + ": error.");
  PredictionError error;
  error.points = f.count("points", 1);
  error.median = f.number("median", 0, kMaxRelative);
  error.p90 = f.number("p90", 0, kMaxRelative);
  error.largest = f.number("largest", 0, kMaxRelative);
  error.p90_too_short = f.number("p90_too_short", 0, kMaxRelative);
  root.join(f);
  return error;
}

ordered_json predictor_json(const StepTimePredictor& p) {
  ordered_json knots = ordered_json::array();
  for (std::size_t i = 0; i < static_cast<std::size_t>(p.num_knots); ++i) {
    knots.push_back({{"tokens", p.knots[i].tokens}, {"ns", p.knots[i].ns}});
  }
  return {{"knots", std::move(knots)},
          {"tile", p.tile},
          {"tile_ns", p.tile_ns},
          {"chunk_token_ns", p.chunk_token_ns},
          {"row_ns", p.row_ns},
          {"logits_ns", p.logits_ns},
          {"logit_row_ns", p.logit_row_ns},
          {"decode_context_ns", p.decode_context_ns},
          {"chunk_work_ns", p.chunk_work_ns},
          {"chunk_context_ns", p.chunk_context_ns},
          {"window", p.window}};
}

ordered_json point_json(const ProfilePoint& point) {
  return {{"decode_rows", point.shape.decode_rows},
          {"decode_context", point.shape.decode_context},
          {"chunk_tokens", point.shape.chunk_tokens},
          {"chunk_context", point.shape.chunk_context},
          {"median_ns", point.median_ns},
          {"spread_ns", point.spread_ns},
          {"repeats", point.repeats},
          {"held_out", point.held_out}};
}

}  // namespace

std::string profile_to_json(const MachineProfile& profile) {
  const ProfileIdentity& id = profile.identity;
  ordered_json points = ordered_json::array();
  for (const ProfilePoint& point : profile.points) points.push_back(point_json(point));
  const PredictionError& e = profile.error;
  const ordered_json root = {{"format", kFormat},
                             {"version", kVersion},
                             {"identity",
                              {{"model_digest", id.model_digest},
                               {"dtype", id.dtype},
                               {"device", id.device},
                               {"device_description", id.device_description},
                               {"threads", id.threads}}},
                             {"model_name", profile.model_name},
                             {"max_num_seqs", profile.max_num_seqs},
                             {"max_model_len", profile.max_model_len},
                             {"max_tokens", profile.max_tokens},
                             {"seconds", profile.seconds},
                             {"free_bytes", profile.free_bytes},
                             {"predictor", predictor_json(profile.predictor)},
                             {"error",
                              {{"points", e.points},
                               {"median", e.median},
                               {"p90", e.p90},
                               {"largest", e.largest},
                               {"p90_too_short", e.p90_too_short}}},
                             {"points", std::move(points)}};
  return dump_json(root, 1) + "\n";
}

Result<MachineProfile> parse_profile(std::string_view text, std::string_view file) {
  const std::string name(file);
  constexpr int kDepth = 8;
  if (json_deeper_than(text, kDepth)) {
    return invalid_argument(fmt::format("{}: is nested deeper than a profile is", name));
  }
  const json root = parse_json(text);
  if (!root.is_object()) return invalid_argument(fmt::format("{}: is not a JSON object", name));
  Fields f(root, name + ": ");
  if (f.text("format") != kFormat) f.fail("format", fmt::format("must be \"{}\"", kFormat));
  const std::int64_t version = f.integer("version", 1, kMaxCount);
  RETURN_IF_ERROR(f.status());
  if (version != kVersion) {
    return unsupported(
        fmt::format("{}: version {} is not {}; run sluice profile again", name, version, kVersion));
  }
  MachineProfile profile;
  profile.identity = read_identity(f, name);
  profile.model_name = f.text("model_name");
  profile.max_num_seqs = f.count("max_num_seqs", 1, 1 << 20);
  profile.max_model_len = f.count("max_model_len", 1);
  profile.max_tokens = f.count("max_tokens", 1, 1 << 20);
  profile.seconds = f.number("seconds", 0, 1e9);
  profile.free_bytes = f.integer("free_bytes", 0, std::int64_t{1} << 60);
  profile.predictor = read_predictor(f, name);
  profile.error = read_error(f, name);
  const json& points = f.member("points", true);
  if (points.empty() || points.size() > kMaxPoints) {
    f.fail("points", fmt::format("must have 1 to {} entries", kMaxPoints));
  }
  RETURN_IF_ERROR(f.status());
  for (std::size_t i = 0; i < points.size(); ++i) {
    profile.points.push_back(
        read_point(points[i], profile, f, fmt::format("{}: points[{}].", name, i)));
    RETURN_IF_ERROR(f.status());
  }
  return profile;
}

}  // namespace sluice
