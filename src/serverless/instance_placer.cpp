#include "serverless/instance_placer.h"

namespace sluice {
namespace {

bool is_better(const MachineOffer& one, const MachineOffer& other) {
  if (one.loaded != other.loaded) return one.loaded;
  if (one.warm != other.warm) return one.warm;
  return std::int64_t{one.used} * other.places < std::int64_t{other.used} * one.places;
}

}  // namespace

std::optional<MachineOffer> place_instance(std::span<const MachineOffer> offers) {
  std::optional<MachineOffer> best;
  for (const MachineOffer& offer : offers) {
    if (offer.used >= offer.places || !(offer.loaded || offer.can_load)) continue;
    if (!best || is_better(offer, *best)) best = offer;
  }
  return best;
}

}  // namespace sluice
