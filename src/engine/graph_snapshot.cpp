#include "engine/graph_snapshot.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/content_hash.h"
#include "device/op_image.h"

namespace sluice {
namespace {

// The arena without the size of KV memory, which changes with what is free and enters no op.
std::string layout_digest(const ArenaPlan& plan) {
  ContentHasher hasher;
  for (std::size_t i = 0; i < kNumRegions; ++i) {
    const auto kind = static_cast<RegionKind>(i);
    hasher.update_part(region_name(kind));
    for (const BufferPlan& buffer : plan.region(kind).buffers) {
      hasher.update_part(buffer.name);
      if (kind == RegionKind::kKv) continue;
      hasher.update_part(fmt::format("{} {}", buffer.offset, buffer.bytes));
    }
  }
  return to_hex(hasher.digest());
}

SnapshotKey key_of(const GraphFacts& facts, const Arena& arena, const SnapshotModel& model) {
  return {{"ops", to_hex(op_image_identity())},
          {"config.json", model.config},
          {"device", facts.device},
          {"dtype", fmt::format("{}, others {}", facts.dtype, facts.other_dtype)},
          {"token budget", fmt::format("{}", facts.token_budget)},
          {"max-num-seqs", fmt::format("{}", facts.max_num_seqs)},
          {"max-model-len", fmt::format("{}", facts.max_model_len)},
          {"block-size", fmt::format("{}", facts.block_size)},
          {"arena", layout_digest(arena.plan())}};
}

// The first reason why a stored section cannot be used; nothing if it was.
Result<std::string> restore(ModelRunner& runner, std::span<const std::byte> image) {
  auto lists = decode_op_lists(image, runner.arena());
  if (!lists) return std::move(lists).error().message;
  return runner.restore_graphs(*std::move(lists));
}

}  // namespace

Status make_graphs(ModelRunner& runner, const GraphFacts& facts, Snapshot& snapshot) {
  if (runner.graphs().mode() == GraphMode::kEager || snapshot.mode() == SnapshotMode::kOff) {
    return runner.capture_graphs();
  }
  SnapshotKey key = key_of(facts, runner.arena(), snapshot.model());
  if (const auto image = snapshot.find(kGraphsSection, key)) {
    ASSIGN_OR_RETURN(const std::string reason, restore(runner, *image));
    if (reason.empty()) {
      snapshot.restored(kGraphsSection);
      return {};
    }
    snapshot.rejected(kGraphsSection, reason);
  }
  RETURN_IF_ERROR(runner.capture_graphs());
  snapshot.offer(kGraphsSection, std::move(key), [&runner] {
    return encode_op_lists(runner.graphs().lists(ForwardVariant::kPlain), runner.arena());
  });
  return {};
}

}  // namespace sluice
