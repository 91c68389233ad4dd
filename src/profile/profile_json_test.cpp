#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "profile/machine_profile.h"
#include "profile/test_profiles.h"

namespace sluice {
namespace {

using nlohmann::json;
using testing::HasSubstr;

MachineProfile fitted() {
  MachineProfile profile = test::test_profile(0.02);
  EXPECT_TRUE(fit_profile(profile));
  return profile;
}

TEST(ProfileJsonTest, AWrittenProfileIsReadBack) {
  const MachineProfile profile = fitted();
  const std::string text = profile_to_json(profile);
  const auto read = parse_profile(text, "p.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(profile_to_json(*read), text);
  EXPECT_EQ(read->identity, profile.identity);
  ASSERT_EQ(read->points.size(), profile.points.size());
  const StepFeatures f = StepShape{7, 900, 130, 700}.features();
  EXPECT_DOUBLE_EQ(read->predictor.time_ns(f), profile.predictor.time_ns(f));
}

void expect_refused(const std::function<void(json&)>& spoil, const char* what) {
  json root = parse_json(profile_to_json(fitted()));
  spoil(root);
  const auto read = parse_profile(dump_json(root), "p.json");
  ASSERT_FALSE(read) << what;
  EXPECT_THAT(read.error().message, HasSubstr("p.json: "));
  EXPECT_THAT(read.error().message, HasSubstr(what));
}

TEST(ProfileJsonTest, WrongFieldsAreNamed) {
  expect_refused([](json& r) { r["format"] = "x"; }, "format");
  expect_refused([](json& r) { r.erase("version"); }, "version is missing");
  expect_refused([](json& r) { r["version"] = 2; }, "version 2");
  expect_refused([](json& r) { r["identity"]["threads"] = 0; }, "identity.threads");
  expect_refused([](json& r) { r["identity"] = 3; }, "identity");
  expect_refused([](json& r) { r["max_tokens"] = 1.5; }, "max_tokens");
  expect_refused([](json& r) { r["free_bytes"] = -1; }, "free_bytes");
  expect_refused([](json& r) { r["free_bytes"] = 18446744073709551615ULL; }, "free_bytes");
  expect_refused([](json& r) { r["predictor"]["row_ns"] = -1; }, "predictor.row_ns");
  expect_refused([](json& r) { r["predictor"]["row_ns"] = nullptr; }, "predictor.row_ns");
  expect_refused([](json& r) { r["predictor"]["tile"] = 0; }, "predictor.tile");
  expect_refused([](json& r) { r["predictor"]["knots"] = json::array(); }, "predictor.knots");
  expect_refused([](json& r) { r["predictor"]["knots"][0]["tokens"] = 1; }, "predictor.knots");
  expect_refused([](json& r) { r["predictor"]["knots"][1]["tokens"] = 0; }, "predictor.knots");
  expect_refused([](json& r) { r["predictor"]["knots"][1]["ns"] = 0; }, "predictor.knots");
  expect_refused([](json& r) { r["predictor"]["knots"][1] = "x"; }, "knots[1]");
  expect_refused([](json& r) { r["error"]["p90"] = "much"; }, "error.p90");
  expect_refused([](json& r) { r["points"] = json::array(); }, "points");
  expect_refused([](json& r) { r["points"] = json::object(); }, "points");
  expect_refused([](json& r) { r["points"][2]["median_ns"] = 0; }, "points[2].median_ns");
  expect_refused([](json& r) { r["points"][2]["decode_rows"] = 33; }, "points[2].decode_rows");
  expect_refused([](json& r) { r["points"][2]["held_out"] = 1; }, "points[2].held_out");
  expect_refused([](json& r) { r["points"][0]["chunk_tokens"] = 0; }, "points[0].chunk_tokens");
  expect_refused([](json& r) { r["model_name"] = std::string(600, 'x'); }, "model_name");
}

TEST(ProfileJsonTest, OtherTextIsRefused) {
  EXPECT_FALSE(parse_profile("", "p"));
  EXPECT_FALSE(parse_profile("[]", "p"));
  EXPECT_FALSE(parse_profile("{\"format\": ", "p"));
  EXPECT_FALSE(parse_profile(std::string(1000, '['), "p"));
  const auto later = parse_profile(R"({"format": "sluice-machine-profile", "version": 9})", "p");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kUnsupported);
}

TEST(ProfileJsonTest, ANameThatIsNotUtf8IsStillWritten) {
  MachineProfile profile = fitted();
  profile.model_name = "caf\xE9";
  EXPECT_TRUE(parse_profile(profile_to_json(profile), "p"));
}

}  // namespace
}  // namespace sluice
