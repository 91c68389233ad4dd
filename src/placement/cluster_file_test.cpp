#include "placement/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

constexpr const char* kGood = R"({
  "servers": 2, "gpus_per_server": 4, "gpu_memory_gb": 80,
  "models": [
    {"name": "sd", "count": 3, "memory_gb": 30.5},
    {"name": "llama", "count": 2, "tensor_parallel": 2, "memory_gb": -20}
  ]})";

TEST(ClusterFileTest, ReadsACluster) {
  const auto cluster = parse_cluster(kGood, "c.json");
  ASSERT_TRUE(cluster) << cluster.error().message;
  EXPECT_EQ(cluster->servers, 2);
  EXPECT_EQ(cluster->gpus_per_server, 4);
  EXPECT_EQ(cluster->gpu_memory_mb, 80'000);
  ASSERT_EQ(cluster->kinds.size(), 2U);
  EXPECT_EQ(cluster->kinds[0].spare_mb, 30'500);
  EXPECT_EQ(cluster->kinds[0].gpus, 1);
  EXPECT_TRUE(cluster->kinds[0].is_producer());
  EXPECT_EQ(cluster->kinds[1].gpus, 2);
  EXPECT_EQ(cluster->kinds[1].count, 2);
  EXPECT_FALSE(cluster->kinds[1].is_producer());
}

struct Wrong {
  const char* from;
  const char* to;
  const char* message;
};

class ClusterFileErrorTest : public testing::TestWithParam<Wrong> {};

TEST_P(ClusterFileErrorTest, NamesFileAndField) {
  std::string text = kGood;
  const std::size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string_view(GetParam().from).size(), GetParam().to);
  const auto cluster = parse_cluster(text, "c.json");
  ASSERT_FALSE(cluster);
  EXPECT_THAT(cluster.error().message, HasSubstr("c.json"));
  EXPECT_THAT(cluster.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, ClusterFileErrorTest,
    testing::Values(
        Wrong{"\"servers\": 2", "\"servers\": 0", "servers must be a whole number from 1 to 1024"},
        Wrong{"\"servers\": 2", "\"servers\": 1e3", "servers must be a whole number"},
        Wrong{"\"servers\": 2", "\"servers\": 18446744073709551615", "servers must be"},
        Wrong{"\"servers\": 2,", "", "servers must be"},
        Wrong{"\"gpus_per_server\": 4", "\"gpus_per_server\": -4", "gpus_per_server must be"},
        Wrong{"\"gpu_memory_gb\": 80", "\"gpu_memory_gb\": -1", "gpu_memory_gb must be"},
        Wrong{"\"gpu_memory_gb\": 80", "\"gpu_memory_gb\": \"80\"", "gpu_memory_gb must be"},
        Wrong{"\"count\": 3", "\"count\": 9",
              "models[0]: count must be a whole number from 1 to 8"},
        Wrong{"\"count\": 3", "\"count\": 5", "need 9 GPUs, 2 servers of 4 have 8"},
        Wrong{"\"tensor_parallel\": 2", "\"tensor_parallel\": 5",
              "models[1]: tensor_parallel must be a whole number from 1 to 4"},
        Wrong{"-20", "-2e7", "models[1]: memory_gb must be"},
        Wrong{"30.5", "80.1", "models[0]: memory_gb is above gpu_memory_gb"},
        Wrong{"30.5", "30.5.5", "not JSON: parse error at line 4, column "},
        Wrong{"30.5", "1e400", "not JSON: number overflow parsing '1e400'"},
        Wrong{", \"memory_gb\": 30.5", "", "models[0]: memory_gb must be"},
        Wrong{"\"sd\"", "\"\"", "models[0]: name must be"},
        Wrong{"\"sd\"", "\"llama\"", "models[1]: the name 'llama' appears twice"},
        Wrong{"\"count\": 3", "\"number\": 3", "models[0] has no field 'number'"},
        Wrong{"\"models\": [", "\"models\": 7, \"x\": [", "no field 'x'"},
        Wrong{"]}", "]", "not JSON: parse error at line 6, column "}));

TEST(ClusterFileTest, RefusesOtherJson) {
  EXPECT_EQ(parse_cluster("[]", "c.json").error().message, "c.json: must be a JSON object");
}

}  // namespace
}  // namespace sluice
