#include "engine/streamed_steps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice {

StreamedSteps::StreamedSteps(const KvLayout& layout, const StreamShape& shape,
                             KvStream::Options options)
    : layout_(layout), shape_(shape), stream_(std::move(options)) {
  CHECK(shape.max_blocks > 0);
}

StreamedSteps::~StreamedSteps() { static_cast<void>(stream_.wait(moves_)); }

Status StreamedSteps::begin(const PlanRow& row, std::int32_t blocks, std::span<const BlockId> pool,
                            std::byte* kv_base, DType dtype) {
  status_ = {};
  CHECK(row.context_len == 0 || (has_file_ && row.sequence == sequence_));
  RETURN_IF_ERROR(begin_file({row.sequence, blocks}));
  context_ = row.context_len;
  end_ = row.context_len + row.query_len;
  place_windows(row, pool, kv_base);
  KvLayerView& view = kv_.view;
  view.k_base = kv_base;
  view.v_base = kv_base + layout_.layer_bytes / 2;
  view.dtype = dtype;
  view.block_size = layout_.block_size;
  view.block_stride = layout_.layer_bytes / layout_.element_bytes;
  view.head_stride = layout_.head_stride;
  view.token_stride = layout_.token_stride;
  for (std::size_t w = 0; w < windows_.size(); ++w) {
    kv_.windows[w] = {windows_[w].slot_mapping.data(), windows_[w].block_table.data()};
  }
  return {};
}

Status StreamedSteps::begin_file(const StreamFile& wanted) {
  if (has_file_ && wanted.sequence == sequence_) {
    CHECK(wanted.blocks == blocks_);
    return {};
  }
  has_file_ = false;
  blocks_ = wanted.blocks;
  const std::int32_t slices = shape_.window_slices(blocks_);
  const KvStream::Shape file{num_layers(), slices / shape_.piece_blocks, shape_.piece_blocks,
                             layout_.layer_bytes};
  RETURN_IF_ERROR(stream_.begin(file));
  sequence_ = wanted.sequence;
  has_file_ = true;
  return {};
}

void StreamedSteps::start_moves(const BatchPlan& plan, std::byte* kv_base) {
  if (plan.stream_file.sequence == 0) return;
  CHECK(moving_.empty());
  for (const PlanTransfer& transfer : plan.transfers) {
    if (moves_stream(transfer.kind)) moving_.push_back(transfer.id);
  }
  move_status_ = begin_moves(plan, kv_base);
}

Status StreamedSteps::begin_moves(const BatchPlan& plan, std::byte* kv_base) {
  RETURN_IF_ERROR(begin_file(plan.stream_file));
  // Blocks of a group follow each other.
  std::vector<PagedBlock> blocks;
  bool reads = false;
  const auto move_group = [&] {
    if (blocks.empty()) return;
    for (const std::int32_t layer :
         layout_.groups[static_cast<std::size_t>(blocks.front().group)].layers) {
      move_layer(layer, blocks, reads, kv_base);
    }
    blocks.clear();
  };
  for (const PlanTransfer& transfer : plan.transfers) {
    if (!moves_stream(transfer.kind)) continue;
    const PagedBlock& block = plan.pages[static_cast<std::size_t>(transfer.resource)];
    if (!blocks.empty() &&
        (block.group != blocks.back().group || block.depth != blocks.back().depth + 1)) {
      move_group();
    }
    reads = transfer.kind == TransferKind::kReadStream;
    blocks.push_back(block);
  }
  move_group();
  return {};
}

// Blocks that follow each other, up to the end of a piece.
void StreamedSteps::move_layer(std::int32_t layer, std::span<const PagedBlock> blocks, bool reads,
                               std::byte* kv_base) {
  const std::int64_t offset = layout_.layers[static_cast<std::size_t>(layer)].k_offset;
  const std::int32_t piece = shape_.piece_blocks;
  const std::int32_t first = blocks.front().depth / piece;
  const std::int32_t count = (blocks.back().depth + 1) / piece - first;
  std::vector<std::byte*>& slices = moved_slices_.emplace_back();
  const auto address = [&](const PagedBlock& block) {
    return kv_base + block.block * layout_.block_bytes + offset;
  };
  // No layer sees what a piece lacks at its front; another block's bytes take the place.
  slices.resize(static_cast<std::size_t>(blocks.front().depth % piece), address(blocks.front()));
  CHECK(!reads || slices.empty());
  for (const PagedBlock& block : blocks) slices.push_back(address(block));
  CHECK(slices.size() == static_cast<std::size_t>(count * piece));
  const KvStream::Range range{layer, first, count};
  reads ? stream_.load(moves_, range, slices) : stream_.save(moves_, range, slices);
}

void StreamedSteps::poll_moves(std::vector<TransferResult>& completed) {
  if (moving_.empty() || !stream_.wait_for(moves_, Duration(0))) return;
  const Status ended = stream_.wait(moves_);
  const Status& status = move_status_ ? ended : move_status_;
  if (!status) log_warning("blocks of a long request were not moved: " + status.error().message);
  for (const TransferId id : moving_) completed.push_back({.id = id, .failed = !status});
  moving_.clear();
  moved_slices_.clear();
}

void StreamedSteps::place_windows(const PlanRow& row, std::span<const BlockId> pool,
                                  std::byte* kv_base) {
  CHECK(static_cast<std::int64_t>(pool.size()) >= shape_.pool_blocks(blocks_));
  const std::int32_t per_block = shape_.slices_per_block;
  const auto place_of = [&](std::int32_t slice) {
    const BlockId block = pool[static_cast<std::size_t>(slice / per_block)];
    CHECK(block > kNullBlock);
    return block * per_block + slice % per_block;
  };
  const auto address = [&](std::int32_t place) { return kv_base + place * layout_.layer_bytes; };
  const std::int32_t size = shape_.window_slices(blocks_);
  std::int32_t slice = 0;
  for (Window& window : windows_) {
    window.slices.clear();
    window.block_table.clear();
    for (std::int32_t i = 0; i < size; ++i, ++slice) {
      window.block_table.push_back(place_of(slice));
      window.slices.push_back(address(window.block_table.back()));
    }
    window.slot_mapping.clear();
    for (std::int32_t i = 0; i < row.query_len; ++i) {
      const std::int32_t position = row.context_len + i;
      const auto block = static_cast<std::size_t>(position / layout_.block_size);
      window.slot_mapping.push_back(std::int64_t{window.block_table[block]} * layout_.block_size +
                                    position % layout_.block_size);
    }
  }
  tails_.clear();
  for (std::int32_t i = 0; i < num_layers() * shape_.piece_blocks; ++i) {
    tails_.push_back(address(place_of(shape_.tail_slice(blocks_, 0) + i)));
  }
}

void StreamedSteps::before_stage(std::size_t stage) {
  const auto layer = static_cast<std::int32_t>(stage) - 1;
  if (layer < 0) return start_load(0);
  if (layer > 0) end_layer(layer - 1);
  if (layer < num_layers()) begin_layer(layer);
}

// Whole pieces before the step, as far as the layer sees them.
void StreamedSteps::start_load(std::int32_t layer) {
  const std::int32_t window =
      layout_
          .groups[static_cast<std::size_t>(layout_.layers[static_cast<std::size_t>(layer)].group)]
          .window;
  const std::int32_t seen = window == 0 ? 0 : std::max(0, context_ - window + 1);
  const std::int32_t first = seen / shape_.piece_tokens();
  const std::int32_t count = context_ / shape_.piece_tokens() - first;
  if (count <= 0 || !status_) return;
  Window& target = window_of(layer);
  const std::span<std::byte* const> slices(target.slices);
  stream_.load(target.loads, {layer, first, count},
               slices.subspan(static_cast<std::size_t>(first * shape_.piece_blocks),
                              static_cast<std::size_t>(count * shape_.piece_blocks)));
}

// The next layer's load is under way before this one's has ended. It goes to the window that the
// last layer has left, and not to the pieces that are saved from there.
void StreamedSteps::begin_layer(std::int32_t layer) {
  if (layer + 1 < num_layers()) start_load(layer + 1);
  note(stream_.wait(window_of(layer).loads));
  note(stream_.wait(window_of(layer).saves));  // of two layers ago
  copy_tail(layer, context_, true);
}

void StreamedSteps::end_layer(std::int32_t layer) {
  const std::int32_t first = context_ / shape_.piece_tokens();
  const std::int32_t count = end_ / shape_.piece_tokens() - first;
  if (count > 0 && status_) {
    Window& source = window_of(layer);
    const std::span<std::byte* const> slices(source.slices);
    stream_.save(source.saves, {layer, first, count},
                 slices.subspan(static_cast<std::size_t>(first * shape_.piece_blocks),
                                static_cast<std::size_t>(count * shape_.piece_blocks)));
  }
  copy_tail(layer, end_, false);
}

// The blocks of the last piece with tokens up to `end`, which is not full.
void StreamedSteps::copy_tail(std::int32_t layer, std::int32_t end, bool into_window) {
  const std::int32_t first = end / shape_.piece_tokens() * shape_.piece_blocks;
  const std::int32_t last = (end + layout_.block_size - 1) / layout_.block_size;
  for (std::int32_t block = first; block < last; ++block) {
    std::byte* const slice = window_of(layer).slices[static_cast<std::size_t>(block)];
    std::byte* const tail =
        tails_[static_cast<std::size_t>(layer * shape_.piece_blocks + block - first)];
    std::memcpy(into_window ? slice : tail, into_window ? tail : slice,
                static_cast<std::size_t>(layout_.layer_bytes));
  }
}

Status StreamedSteps::finish() {
  for (Window& window : windows_) {
    note(stream_.wait(window.loads));
    note(stream_.wait(window.saves));
  }
  return status_;
}

void StreamedSteps::end(SequenceId sequence) {
  if (!has_file_ || sequence != sequence_) return;
  CHECK(moving_.empty());
  stream_.end();
  has_file_ = false;
}

}  // namespace sluice
