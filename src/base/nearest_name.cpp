#include "base/nearest_name.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace sluice {
namespace {

// How many single-character edits apart two names are; anything above 2 is 3.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  constexpr std::size_t kLongest = 40;
  constexpr std::size_t kFar = 3;
  if (a.size() > kLongest || b.size() > kLongest) return kFar;
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= kFar) return kFar;
  std::array<std::size_t, kLongest + 1> row{};
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return std::min(row[b.size()], kFar);
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t best_distance = 3;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    // Two edits turn any name of two letters into any other.
    if (distance < best_distance && distance < name.size() / 2 + 1) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace sluice
