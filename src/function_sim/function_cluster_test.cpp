#include "function_sim/function_cluster.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A host of 200 bytes with a device of 100. A worker takes 2 s; a backbone 4 s from disk and 1 s
// more to the device, its kernels 3 s; an adapter 0.5 s, an instance 0.25 s.
CatalogSpec one_backbone(std::int32_t functions) {
  CatalogSpec spec;
  spec.host_of_device = {0};
  spec.worker = {1, 2};
  BackboneCosts backbone;
  backbone.host = {40, 4};
  backbone.device = {40, 1};
  backbone.kernels = {2, 3};
  spec.backbones = {backbone};
  FunctionCosts function;
  function.adapter_host = {2, 0.5};
  function.adapter_device = {2, 0};
  function.instance = {3, 0.25};
  spec.functions.assign(static_cast<std::size_t>(functions), function);
  return spec;
}

TEST(FunctionClusterTest, EachArtifactIsThereAtTheEndOfItsOwnLoad) {
  FunctionCluster cluster(one_backbone(2), {200, 100});
  const TimePoint begin{seconds(10)};
  const Duration shared = seconds(2 + 4 + 1 + 3);  // what both functions need
  const Duration own = milliseconds(750);
  EXPECT_EQ(cluster.start(0, 0, begin), begin + shared + own);
  cluster.check_integrity();
  // The second function waits for the backbone's parts, not for the first one's instance.
  const TimePoint later = begin + seconds(4);
  EXPECT_EQ(cluster.start_delay(1, 0, later), seconds(6) + own);
  EXPECT_EQ(cluster.start(1, 0, later), begin + shared + own);
  cluster.check_integrity();
}

TEST(FunctionClusterTest, ALoadedArtifactDelaysNoStart) {
  FunctionCluster cluster(one_backbone(2), {200, 100});
  const TimePoint ready = cluster.start(0, 0, TimePoint());
  EXPECT_EQ(cluster.start_delay(1, 0, ready), milliseconds(750));
  cluster.end(0, 0, FunctionCluster::Keeps::kAllButProcess);
  EXPECT_EQ(cluster.start_delay(0, 0, ready), milliseconds(250));
  cluster.check_integrity();
}

}  // namespace
}  // namespace sluice
