#include "engine/weight_snapshot.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/content_hash.h"
#include "snapshot/snapshot_format.h"

namespace sluice {
namespace {

SnapshotKey key_of(const WeightsLayout& layout, const SnapshotModel& model) {
  return {{"weights", model.weights},
          {"config.json", model.config},
          {"dtype", fmt::format("{}, others {}", dtype_name(layout.dtypes().matrices),
                                dtype_name(layout.dtypes().others))},
          {"layout", to_hex(layout.derived_layout())}};
}

bool wanted(const WeightsLayout& layout, const Snapshot& snapshot) {
  return layout.derived().bytes > 0 && !snapshot.model().weights.empty();
}

bool is_truncated(const UncheckedSection& section) {
  struct stat info{};
  return fstat(section.fd, &info) == 0 &&
         static_cast<std::uint64_t>(info.st_size) < section.offset + section.bytes.size();
}

bool all_pieces_match(const UncheckedSection& section, ThreadPool& pool) {
  std::atomic<bool> match = true;
  pool.parallel_for(static_cast<int>(section.pieces.size()), [&](int piece) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kSnapshotPieceBytes;
    const std::size_t bytes =
        std::min<std::size_t>(kSnapshotPieceBytes, section.bytes.size() - begin);
    if (content_hash(section.bytes.subspan(begin, bytes)) !=
        section.pieces[static_cast<std::size_t>(piece)]) {
      match = false;
    }
  });
  return match;
}

}  // namespace

std::optional<UncheckedSection> find_weights_section(const WeightsLayout& layout,
                                                     const DeviceTraits& traits, ThreadPool& pool,
                                                     Snapshot& snapshot) {
  if (!wanted(layout, snapshot)) return std::nullopt;
  auto section = snapshot.find_unchecked(kWeightsSection, key_of(layout, snapshot.model()));
  if (!section) return std::nullopt;
  if (section->content_bytes != layout.derived().bytes) {
    snapshot.rejected(kWeightsSection, "it has another size than the converted weights");
    return std::nullopt;
  }
  if (is_truncated(*section)) {
    snapshot.rejected(kWeightsSection, "the file became shorter after it was opened");
    return std::nullopt;
  }
  if (traits.maps_files) return section;
  if (all_pieces_match(*section, pool)) {
    snapshot.checked(kWeightsSection, *section);
    return section;
  }
  snapshot.damaged(kWeightsSection, *section);
  return std::nullopt;
}

void offer_weights(const WeightsLayout& layout, const Arena& arena, Device& device,
                   Snapshot& snapshot) {
  if (!wanted(layout, snapshot)) return;
  const std::byte* const begin = arena.region_base(RegionKind::kWeights) + layout.derived().offset;
  SnapshotKey key = key_of(layout, snapshot.model());
  if (device.traits().host_accessible) {
    snapshot.offer_in_place(kWeightsSection, std::move(key), {begin, layout.derived().bytes});
    return;
  }
  const std::size_t bytes = layout.derived().bytes;
  snapshot.offer(kWeightsSection, std::move(key),
                 [&device, begin, bytes]() -> Result<std::vector<std::byte>> {
                   std::vector<std::byte> copy(bytes);
                   RETURN_IF_ERROR(device.copy_to_host(copy.data(), begin, bytes));
                   RETURN_IF_ERROR(device.synchronize());
                   return copy;
                 });
}

}  // namespace sluice
