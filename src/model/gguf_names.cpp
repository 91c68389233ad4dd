#include "model/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace sluice {
namespace {

using NamePair = std::pair<std::string_view, std::string_view>;

constexpr std::array kModelNames = {
    NamePair{"token_embd.weight", "model.embed_tokens.weight"},
    NamePair{"output_norm.weight", "model.norm.weight"},
    NamePair{"output.weight", "lm_head.weight"},
};

// After "blk.N." and "model.layers.N.", without ".weight" or ".bias".
constexpr std::array kLayerNames = {
    NamePair{"attn_norm", "input_layernorm"},    NamePair{"attn_q", "self_attn.q_proj"},
    NamePair{"attn_k", "self_attn.k_proj"},      NamePair{"attn_v", "self_attn.v_proj"},
    NamePair{"attn_q_norm", "self_attn.q_norm"}, NamePair{"attn_k_norm", "self_attn.k_norm"},
    NamePair{"attn_output", "self_attn.o_proj"}, NamePair{"ffn_norm", "post_attention_layernorm"},
    NamePair{"ffn_gate", "mlp.gate_proj"},       NamePair{"ffn_up", "mlp.up_proj"},
    NamePair{"ffn_down", "mlp.down_proj"},
};

template <std::size_t kCount>
std::optional<std::string_view> find_name(const std::array<NamePair, kCount>& names,
                                          std::string_view name) {
  const auto* found = std::find_if(names.begin(), names.end(),
                                   [&](const NamePair& pair) { return pair.first == name; });
  if (found == names.end()) return std::nullopt;
  return found->second;
}

// "blk.3.attn_q.weight" in its parts.
struct LayerName {
  std::string_view layer;  // "3"
  std::string_view part;   // "attn_q"
  std::string_view kind;   // "weight"
};

std::optional<LayerName> split_layer_name(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::size_t first = name.find('.');
  const std::size_t last = name.rfind('.');
  if (first == std::string_view::npos || first == 0 || first > 4 || first == last) {
    return std::nullopt;
  }
  const LayerName parts{name.substr(0, first), name.substr(first + 1, last - first - 1),
                        name.substr(last + 1)};
  const bool digits = parts.layer.find_first_not_of("0123456789") == std::string_view::npos;
  const bool canonical = digits && (parts.layer.size() == 1 || parts.layer.front() != '0');
  if (!canonical || (parts.kind != "weight" && parts.kind != "bias")) return std::nullopt;
  return parts;
}

}  // namespace

std::optional<std::string> checkpoint_name(std::string_view gguf_name) {
  if (const auto whole = find_name(kModelNames, gguf_name)) return std::string(*whole);
  const auto parts = split_layer_name(gguf_name);
  if (!parts) return std::nullopt;
  const auto name = find_name(kLayerNames, parts->part);
  if (!name) return std::nullopt;
  return fmt::format("model.layers.{}.{}.{}", parts->layer, *name, parts->kind);
}

bool has_paired_rows(std::string_view gguf_name) {
  const auto parts = split_layer_name(gguf_name);
  return parts && (parts->part == "attn_q" || parts->part == "attn_k");
}

}  // namespace sluice
