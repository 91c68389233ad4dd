// The registry of sections: each kind of section that some part of the program keeps in snapshots.
// A new kind is one line in section_kinds.cpp and one here; the part itself encodes, decodes and
// names what its contents depend on.
// Constants; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

struct SectionKind {
  std::string_view name;
  // Raised when a part changes the encoding of its contents, so that older sections do not match.
  std::uint32_t version = 1;
  std::string_view holds;  // for people
  // Whether --snapshot auto keeps it in the cache folder.
  bool kept_by_auto = true;
};

// The machine profile's JSON (profile/machine_profile.h). The cache folder has it as a file
// already.
inline constexpr SectionKind kMachineProfileSection{
    "machine-profile", 1, "measured step times, for --token-budget auto and time", false};
// The captured graphs as lists of ops (engine/graph_snapshot.h).
inline constexpr SectionKind kGraphsSection{"graphs", 2, "the captured graphs, as lists of ops"};

// The model's name. Its key has digests of all bytes of the model, so it tells for which model a
// file was saved.
inline constexpr SectionKind kModelSection{"model", 1,
                                           "the model's name; its key names the content", false};
// The weights that --dtype converts, unchanged from the weights region (model/weights.h).
inline constexpr SectionKind kWeightsSection{"weights", 1, "the weights that --dtype converts",
                                             false};
// The tables of the rotary embedding (engine/rope_snapshot.h).
inline constexpr SectionKind kRopeSection{"rope", 1, "the tables of the rotary embedding"};
// The tokenizer's image (tokenizer/image_layout.h).
inline constexpr SectionKind kTokenizerSection{"tokenizer", 1, "the tokenizer as flat tables"};
// The part of the tokenizer's files that concerns chats (chat_template/template_sources.h).
inline constexpr SectionKind kChatTemplatesSection{
    "chat-templates", 1, "the texts of the chat templates and of the special tokens"};
// The KV blocks of prompts that the operator gives (front/warm_image.h).
inline constexpr SectionKind kWarmPromptsSection{"warm-prompts", 1, "KV blocks of warm prompts"};
// The checksum of a short input's logits (apps/canary.h).
inline constexpr SectionKind kCanarySection{"canary", 2, "the checksum of a short input's logits"};

std::span<const SectionKind* const> section_kinds();
// Null for a kind that this version does not know.
const SectionKind* find_section_kind(std::string_view name);

}  // namespace sluice
