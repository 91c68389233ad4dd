#include "serverless/instance_placer.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(InstancePlacer, TakesTheMachineThatHasTheBackbone) {
  const std::vector<MachineOffer> offers = {{0, 8, 0, false, true}, {1, 8, 7, true, false}};
  EXPECT_EQ(place_instance(offers)->machine, 1);
}

TEST(InstancePlacer, SpreadsByThePartOfPlacesInUse) {
  // Half of machine 0 is in use, a third of machine 1.
  const std::vector<MachineOffer> offers = {{0, 4, 2, true, true}, {1, 9, 3, true, false}};
  EXPECT_EQ(place_instance(offers)->machine, 1);
  const std::vector<MachineOffer> even = {{0, 4, 2, true, true}, {1, 2, 1, true, false}};
  EXPECT_EQ(place_instance(even)->machine, 0);
}

TEST(InstancePlacer, WarmWorkersComeBeforeFreePlacesAndAfterTheBackbone) {
  std::vector<MachineOffer> offers = {{0, 8, 0, true, true}, {1, 8, 7, true, true}};
  offers[1].warm = true;
  EXPECT_EQ(place_instance(offers)->machine, 1);
  offers[1].loaded = false;
  EXPECT_EQ(place_instance(offers)->machine, 0);
}

TEST(InstancePlacer, PassesOverFullMachinesAndThoseThatCannotRunIt) {
  const std::vector<MachineOffer> offers = {
      {0, 2, 2, true, true}, {1, 4, 0, false, false}, {2, 4, 3, false, true}};
  EXPECT_EQ(place_instance(offers)->machine, 2);
  EXPECT_FALSE(place_instance(std::span(offers).first(2)).has_value());
  EXPECT_FALSE(place_instance({}).has_value());
}

}  // namespace
}  // namespace sluice
