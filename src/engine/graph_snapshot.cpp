#include "engine/graph_snapshot.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/byte_stream.h"
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

SnapshotKey key_of(const GraphFacts& facts, const ArenaPlan& plan, const SnapshotModel& model) {
  return {{"ops", to_hex(op_image_identity())},
          {"config.json", model.config},
          {"device", facts.device},
          {"dtype", fmt::format("{}, others {}", facts.dtype, facts.other_dtype)},
          {"token budget", fmt::format("{}", facts.token_budget)},
          {"max-num-seqs", fmt::format("{}", facts.max_num_seqs)},
          {"max-model-len", fmt::format("{}", facts.max_model_len)},
          {"block-size", fmt::format("{}", facts.block_size)},
          {"arena", layout_digest(plan)}};
}

Result<std::vector<std::byte>> encode(const ModelRunner& runner) {
  const auto lists = runner.graphs().lists(ForwardVariant::kPlain);
  ASSIGN_OR_RETURN(const std::vector<std::byte> image, encode_op_lists(lists, runner.arena()));
  ByteWriter section;
  section.u64(reinterpret_cast<std::uintptr_t>(runner.arena().base()));
  section.bytes(image);
  return section.take();
}

}  // namespace

GraphSnapshot::GraphSnapshot(const GraphFacts& facts, const ArenaPlan& plan, GraphMode mode,
                             Snapshot& snapshot)
    : snapshot_(snapshot),
      wanted_(mode != GraphMode::kEager && snapshot.mode() != SnapshotMode::kOff) {
  if (!wanted_) return;
  key_ = key_of(facts, plan, snapshot.model());
  const auto section = snapshot.find(kGraphsSection, key_);
  if (!section) return;
  ByteReader reader(*section);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a base is a number until it is reserved
  base_ = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(reader.u64()));
  if (reader.ok()) {
    lists_ = reader.bytes(reader.left());
  } else {
    snapshot.rejected(kGraphsSection, "it ends before its lists");
  }
}

Result<Arena> GraphSnapshot::reserve(Device& device, ArenaPlan plan) {
  if (!lists_) return Arena::create(device, std::move(plan));
  const RestoreMode mode = snapshot_.restore_mode();
  if (mode == RestoreMode::kRelocate) {
    return Arena::create_elsewhere(base_, device, std::move(plan));
  }
  auto at_base = Arena::create_at(base_, device, plan);
  if (at_base) return at_base;
  if (mode == RestoreMode::kLayout) {
    snapshot_.rejected(kGraphsSection,
                       fmt::format("--restore layout: {}", at_base.error().message));
    lists_.reset();
  }
  return Arena::create(device, std::move(plan));
}

// The first reason why the stored section cannot be used; empty if it was.
Result<std::string> GraphSnapshot::restore(ModelRunner& runner) {
  auto lists = decode_op_lists(*lists_, runner.arena());
  if (!lists) return std::move(lists).error().message;
  return runner.restore_graphs(*std::move(lists));
}

Status GraphSnapshot::make_graphs(ModelRunner& runner) {
  if (!wanted_) return runner.capture_graphs();
  snapshot_.begin(kGraphsSection);
  if (lists_) {
    ASSIGN_OR_RETURN(const std::string reason, restore(runner));
    if (reason.empty()) {
      snapshot_.restored(kGraphsSection, runner.arena().base() == base_ ? RestoreMode::kLayout
                                                                        : RestoreMode::kRelocate);
      return {};
    }
    snapshot_.rejected(kGraphsSection, reason);
  }
  RETURN_IF_ERROR(runner.capture_graphs());
  snapshot_.offer(kGraphsSection, std::move(key_), [&runner] { return encode(runner); });
  return {};
}

}  // namespace sluice
