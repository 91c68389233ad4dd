#include "sandbox/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, kLayerCount> kLayerNames = {
    "user namespace",    "pid namespace", "memory limit",   "task limit",      "cpu limit",
    "network namespace", "ipc namespace", "uts namespace",  "mount namespace", "no core dumps",
    "no privileges",     "landlock",      "seccomp filter",
};

}  // namespace

std::string_view layer_name(Layer layer) { return kLayerNames[static_cast<std::size_t>(layer)]; }

void SandboxReport::add(Layer layer, bool active, std::string detail) {
  CHECK(find(layer) == nullptr);
  layers_.push_back({layer, active, std::move(detail)});
}

void SandboxReport::merge(const SandboxReport& other) {
  for (const LayerState& state : other.layers_) {
    if (find(state.layer) == nullptr) layers_.push_back(state);
  }
}

const LayerState* SandboxReport::find(Layer layer) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const LayerState& state) { return state.layer == layer; });
  return found == layers_.end() ? nullptr : &*found;
}

std::vector<LayerState> SandboxReport::layers() const {
  std::vector<LayerState> layers = layers_;
  std::sort(layers.begin(), layers.end(),
            [](const LayerState& a, const LayerState& b) { return a.layer < b.layer; });
  return layers;
}

bool SandboxReport::active(Layer layer) const {
  const LayerState* state = find(layer);
  return state != nullptr && state->active;
}

std::string SandboxReport::missing() const {
  std::string text;
  for (std::size_t i = 0; i < kLayerCount; ++i) {
    const auto layer = static_cast<Layer>(i);
    if (active(layer)) continue;
    const LayerState* state = find(layer);
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", layer_name(layer),
                        state == nullptr ? "not reported" : state->detail);
  }
  return text;
}

}  // namespace sluice
