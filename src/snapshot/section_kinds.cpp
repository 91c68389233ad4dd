#include "snapshot/section_kinds.h"

#include <array>

namespace sluice {
namespace {

constexpr std::array<const SectionKind*, 9> kKinds = {
    &kModelSection,         &kMachineProfileSection, &kGraphsSection,
    &kWeightsSection,       &kRopeSection,           &kTokenizerSection,
    &kChatTemplatesSection, &kWarmPromptsSection,    &kCanarySection};

}  // namespace

std::span<const SectionKind* const> section_kinds() { return kKinds; }

const SectionKind* find_section_kind(std::string_view name) {
  for (const SectionKind* kind : kKinds) {
    if (kind->name == name) return kind;
  }
  return nullptr;
}

}  // namespace sluice
