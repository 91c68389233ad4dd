// Random artifacts for tests of the policies: hosts with devices, backbones with adapters, copies
// of different worth, and a check of every rule that a plan must keep.
#pragma once

#include <cstdint>
#include <vector>

#include "serverless/artifact.h"
#include "serverless/preload_policy.h"

namespace sluice::test {

struct Instance {
  Artifacts artifacts;
  std::vector<Residency> residency;
  std::vector<double> rates;
  std::vector<std::int64_t> idle;

  PreloadView view() const { return {residency, rates, idle}; }
};

// One host with one or two devices, at most about 20 placements, all absent. Memory for some of
// them.
Instance random_instance(std::uint64_t seed);

// Marks a random part, closed under needs, as idle or in use; idle bytes grow to hold the idle
// ones.
void load_some(Instance& instance, std::uint64_t seed);

// Seconds saved per second by a set of placements.
double value_of(const Instance& instance, const std::vector<bool>& placed);

// EXPECTs that the plan keeps the idle bytes, every need and everything in use, in an order that
// can be executed, and that its value is that of its set.
void check_plan(const Instance& instance, const PreloadPlan& plan);

}  // namespace sluice::test
