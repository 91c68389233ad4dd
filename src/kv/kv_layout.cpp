#include "kv/kv_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr std::int64_t kBlockAlignment = 64;  // a cache line, also suits vector loads

Status in_range(const char* field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(
      fmt::format("KV layout: {} must be between {} and {}, got {}", field, low, high, value));
}

Status validate(const KvLayoutOptions& o) {
  RETURN_IF_ERROR(in_range("block_size", o.block_size, 1, 4096));
  RETURN_IF_ERROR(in_range("num_kv_heads", o.num_kv_heads, 1, 65536));
  RETURN_IF_ERROR(in_range("head_dim", o.head_dim, 1, 65536));
  RETURN_IF_ERROR(in_range("element_bytes", o.element_bytes, 1, 8));
  RETURN_IF_ERROR(
      in_range("number of layers", static_cast<std::int64_t>(o.layer_windows.size()), 1, 65536));
  RETURN_IF_ERROR(in_range("max_layers_per_group", o.max_layers_per_group, 0, 65536));
  for (const std::int32_t window : o.layer_windows) {
    RETURN_IF_ERROR(in_range("window", window, 0, INT32_MAX));
  }
  return {};
}

}  // namespace

std::vector<KvGroup> group_layers(std::span<const std::int32_t> layer_windows,
                                  std::int32_t max_layers) {
  std::vector<KvGroup> whole;
  for (std::size_t layer = 0; layer < layer_windows.size(); ++layer) {
    const auto same = std::find_if(whole.begin(), whole.end(), [&](const KvGroup& g) {
      return g.window == layer_windows[layer];
    });
    KvGroup& group =
        same != whole.end() ? *same : whole.emplace_back(KvGroup{layer_windows[layer], {}});
    group.layers.push_back(static_cast<std::int32_t>(layer));
  }
  if (max_layers <= 0) return whole;
  std::vector<KvGroup> split;
  for (const KvGroup& group : whole) {
    const std::size_t size = group.layers.size();
    const auto limit = static_cast<std::size_t>(max_layers);
    const std::size_t parts = (size + limit - 1) / limit;
    for (std::size_t part = 0; part < parts; ++part) {
      const auto begin = group.layers.begin();
      split.push_back({group.window,
                       {begin + static_cast<std::ptrdiff_t>(part * size / parts),
                        begin + static_cast<std::ptrdiff_t>((part + 1) * size / parts)}});
    }
  }
  return split;
}

Result<KvLayout> make_kv_layout(const KvLayoutOptions& options) {
  RETURN_IF_ERROR(validate(options));
  KvLayout layout;
  layout.block_size = options.block_size;
  layout.num_kv_heads = options.num_kv_heads;
  layout.head_dim = options.head_dim;
  layout.element_bytes = options.element_bytes;
  layout.groups = group_layers(options.layer_windows, options.max_layers_per_group);
  layout.token_stride = options.head_dim;
  layout.head_stride = layout.token_stride * options.block_size;
  const std::int64_t half_bytes = layout.head_stride * options.num_kv_heads * options.element_bytes;
  layout.layer_bytes = 2 * half_bytes;

  std::size_t most_layers = 0;
  layout.layers.resize(options.layer_windows.size());
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    const std::vector<std::int32_t>& layers = layout.groups[g].layers;
    most_layers = std::max(most_layers, layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::int64_t start = static_cast<std::int64_t>(i) * layout.layer_bytes;
      layout.layers[static_cast<std::size_t>(layers[i])] = {static_cast<std::int32_t>(g), start,
                                                            start + half_bytes};
    }
  }
  // Kernels get the block stride in elements, so it must be a whole number of elements.
  const std::int64_t alignment = kBlockAlignment * options.element_bytes;
  const std::int64_t used = static_cast<std::int64_t>(most_layers) * layout.layer_bytes;
  layout.block_bytes = (used + alignment - 1) / alignment * alignment;
  layout.block_stride = layout.block_bytes / options.element_bytes;
  return layout;
}

}  // namespace sluice
