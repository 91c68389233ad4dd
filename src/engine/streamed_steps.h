// StreamedSteps: the KV of steps whose only row is of a sequence that does not fit into memory
// (kv/stream_shape.h). Before a layer's attention its keys and values are loaded into one window;
// meanwhile the layer before computes in the other one. Keys and values that the step writes are
// saved as soon as their piece is full; the rest stays in memory, in the tails. Attention reads a
// window as it reads blocks, in the same order along positions, so it computes the same bits.
//
// Whole blocks move between memory and the file, too: the prefix cache keeps those that were
// computed, and brings those of an earlier request.
//
// Owner: the model runner, on a device whose memory is the host's. Threads: the engine's thread,
// and those of the stream, which touch no window and no tail that is in use.
// Allocation: when a sequence begins, and for the queue of the stream. Other steps pay nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/kv_layout.h"
#include "kv/stream_shape.h"
#include "model/decoder.h"
#include "offload/kv_stream.h"
#include "scheduler/batch_plan.h"

namespace sluice {

class StreamedSteps {
 public:
  StreamedSteps(const KvLayout& layout, const StreamShape& shape, KvStream::Options options);
  ~StreamedSteps();  // waits for moves

  const StreamShape& shape() const { return shape_; }

  // Before a step with this row. `blocks`: of positions, that the sequence will have at most;
  // `pool`: its blocks. A sequence with another id than the last one's begins a file.
  Status begin(const PlanRow& row, std::int32_t blocks, std::span<const BlockId> pool,
               std::byte* kv_base, DType dtype);
  // Where the decoder finds the step's KV. Valid until the next begin().
  const DecoderStreamedKv& kv() const { return kv_; }
  // Decoder::BeforeStage of the step: stage 1 is layer 0.
  void before_stage(std::size_t stage);
  // After the last stage: the first error of the step, after which its results are worthless.
  Status finish();

  // Drops the file, if it is this sequence's. REQUIRES: no move is under way.
  void end(SequenceId sequence);

  // Moves whole blocks between their places in memory and the file, beside steps (BatchPlan says
  // which blocks). The blocks' ids are in `blocks`, and `transfers` names them. REQUIRES: the ends
  // of earlier moves were reported.
  void start_moves(const BatchPlan& plan, std::byte* kv_base);
  bool moves() const { return !moving_.empty(); }
  // Appends the transfers if all have ended. Never waits.
  void poll_moves(std::vector<TransferResult>& completed);
  void wait_for_moves(Duration at_most) { stream_.wait_for(moves_, at_most); }

  KvStream::Bytes bytes() const { return stream_.bytes(); }

 private:
  struct Window {
    std::vector<std::byte*> slices;         // by block of positions
    std::vector<std::int32_t> block_table;  // the same, in slices from the start of KV memory
    std::vector<std::int64_t> slot_mapping;
    KvStream::Batch loads;
    KvStream::Batch saves;
  };

  std::int32_t num_layers() const { return shape_.num_layers; }
  Window& window_of(std::int32_t layer) { return windows_[static_cast<std::size_t>(layer % 2)]; }
  Status begin_file(const StreamFile& wanted);
  void place_windows(const PlanRow& row, std::span<const BlockId> pool, std::byte* kv_base);
  void start_load(std::int32_t layer);
  void begin_layer(std::int32_t layer);
  void end_layer(std::int32_t layer);
  void copy_tail(std::int32_t layer, std::int32_t end, bool into_window);
  Status begin_moves(const BatchPlan& plan, std::byte* kv_base);
  void move_layer(std::int32_t layer, std::span<const PagedBlock> blocks, bool reads,
                  std::byte* kv_base);
  void note(const Status& status) {
    if (status_) status_ = status;
  }

  const KvLayout layout_;
  const StreamShape shape_;
  KvStream stream_;
  SequenceId sequence_ = 0;
  bool has_file_ = false;
  std::int32_t blocks_ = 0;
  std::array<Window, 2> windows_;
  std::vector<std::byte*> tails_;  // slices: [layer][block of a piece]
  DecoderStreamedKv kv_;
  std::int32_t context_ = 0;  // tokens before the step
  std::int32_t end_ = 0;      // tokens after it
  Status status_;
  // Moves under way.
  std::vector<TransferId> moving_;
  std::vector<std::vector<std::byte*>> moved_slices_;  // of each part of the batch
  KvStream::Batch moves_;
  Status move_status_;
};

}  // namespace sluice
