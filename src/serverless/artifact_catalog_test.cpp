#include "serverless/artifact_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "serverless/preload_policy.h"

namespace sluice {
namespace {

using testing::ElementsAre;

// Two functions with adapters and the base model on backbone 0, one function on backbone 1.
CatalogSpec four_functions() {
  CatalogSpec spec;
  spec.worker = {10, 0.1};
  spec.backbones = {{{100, 2}, {90, 1}, {5, 0.5}, {3, 0.2}},
                    {{200, 4}, {180, 2}, {5, 1}, {3, 0.2}}};
  const FunctionCosts adapter{0, true, {20, 0.3}, {18, 0.1}, {7, 0.4}};
  FunctionCosts base = adapter;
  base.has_adapter = false;
  FunctionCosts other = adapter;
  other.backbone = 1;
  spec.functions = {adapter, adapter, base, other};
  return spec;
}

// The placements that a function's instance needs, directly or not, and itself.
std::vector<std::int32_t> closure(const Artifacts& artifacts, std::int32_t placement) {
  std::vector<std::int32_t> all = {placement};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& one = artifacts.placements[static_cast<std::size_t>(all[i])];
    for (const std::int32_t need : artifacts.needs_of(one)) {
      if (std::ranges::find(all, need) == all.end()) all.push_back(need);
    }
  }
  std::ranges::sort(all);
  return all;
}

double seconds_of(const ArtifactCatalog& catalog, std::int32_t placement) {
  double sum_s = 0;
  for (const std::int32_t one : closure(catalog.artifacts(), placement)) {
    sum_s += catalog.artifacts().placements[static_cast<std::size_t>(one)].saved_s;
  }
  return sum_s;
}

TEST(ArtifactCatalogTest, HostWithoutDevicesComputesItself) {
  const ArtifactCatalog catalog(four_functions());
  catalog.artifacts().check_integrity();
  EXPECT_EQ(catalog.artifacts().num_memories, 1);
  EXPECT_THAT(catalog.places(), ElementsAre(0));
  // Worker, backbone, pages, kernels, adapter, instance.
  EXPECT_EQ(closure(catalog.artifacts(), catalog.instance(0, 0)).size(), 6U);
  EXPECT_DOUBLE_EQ(seconds_of(catalog, catalog.instance(0, 0)), 0.1 + 2 + 0.5 + 0.2 + 0.3 + 0.4);
  EXPECT_DOUBLE_EQ(seconds_of(catalog, catalog.instance(2, 0)), 0.1 + 2 + 0.5 + 0.2 + 0.4);
}

TEST(ArtifactCatalogTest, DevicesHaveTheirOwnCopies) {
  CatalogSpec spec = four_functions();
  spec.hosts = 2;
  spec.host_of_device = {0, 0, 1};
  const ArtifactCatalog catalog(spec);
  catalog.artifacts().check_integrity();
  EXPECT_THAT(catalog.places(), ElementsAre(2, 3, 4));
  const auto needs = closure(catalog.artifacts(), catalog.instance(0, 2));
  EXPECT_EQ(needs.size(), 6U);
  for (const std::int32_t need : needs) {
    const Placement& placement = catalog.artifacts().placements[static_cast<std::size_t>(need)];
    const bool is_worker = catalog.kind(placement.artifact) == ArtifactKind::kWorker;
    EXPECT_EQ(placement.memory, is_worker ? 1 : 4);
  }
  EXPECT_DOUBLE_EQ(seconds_of(catalog, catalog.instance(0, 2)), 0.1 + 3 + 0.5 + 0.2 + 0.4 + 0.4);
}

TEST(ArtifactCatalogTest, SharedArtifactsHaveTheRatesOfAllTheirFunctions) {
  const ArtifactCatalog catalog(four_functions());
  const std::vector<double> rates = catalog.rates(std::vector<double>{1, 2, 4, 8});
  double of[6] = {};
  for (std::int32_t a = 0; a < catalog.artifacts().num_artifacts; ++a) {
    of[static_cast<int>(catalog.kind(a))] += rates[static_cast<std::size_t>(a)];
  }
  EXPECT_DOUBLE_EQ(of[static_cast<int>(ArtifactKind::kWorker)], 15);
  EXPECT_DOUBLE_EQ(of[static_cast<int>(ArtifactKind::kBackbone)], 7 + 8);
  EXPECT_DOUBLE_EQ(of[static_cast<int>(ArtifactKind::kAdapter)], 11);  // not the base model's
  EXPECT_DOUBLE_EQ(of[static_cast<int>(ArtifactKind::kInstance)], 15);
}

TEST(ArtifactCatalogTest, PlansOfACatalog) {
  CatalogSpec spec = four_functions();
  spec.host_of_device = {0};
  const ArtifactCatalog catalog(spec);
  PreloadPolicy policy(catalog.artifacts());
  const std::vector<Residency> residency(catalog.artifacts().placements.size(), Residency::kAbsent);
  const std::vector<double> rates = catalog.rates(std::vector<double>{1, 0.1, 0, 0});
  // All of function 0 fits: worker in the host; backbone, pages, kernels, adapter, instance.
  const std::vector<std::int64_t> idle = {10, 90 + 5 + 3 + 18 + 7};
  const PreloadPlan plan = policy.plan({residency, rates, idle});
  EXPECT_EQ(plan.load, closure(catalog.artifacts(), catalog.instance(0, 0)));
}

}  // namespace
}  // namespace sluice
