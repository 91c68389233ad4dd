// WeightStream: brings mapped weights into memory in the order in which a forward pass uses them,
// so that the first steps run while later layers are still being read. A thread of its own reads
// ahead; a step waits at each stage (wait()), and the pool's threads help it.
//
// Derived weights that a snapshot holds are also compared with their hashes, before wait() lets any
// step use them. If a piece differs, wait() makes all derived weights natively, at the same
// addresses, and the step goes on: what earlier layers computed came from pieces that were right.
//
// Derived weights that no snapshot holds are converted in the same order, piece by piece: by the
// stream's thread until the first step begins, then by the pool's threads in wait(), which take the
// layer that the step needs next. From then on the stream's thread only reads files ahead: it would
// take a core from the step.
//
// Owner: the model runner. Threads: the engine's thread, the pool's in wait(), and its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/hash128.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "device/arena.h"
#include "model/weights.h"

namespace sluice {

// Derived weights in the arena that are mapped from a snapshot.
struct StreamedSection {
  std::span<const std::byte> bytes;  // padding included
  std::size_t region_offset = 0;     // of the first byte, in the weights region
  std::vector<Hash128> pieces;       // of kSnapshotPieceBytes each
  // Called once on the engine's thread: when all pieces were right, or to replace the derived
  // weights.
  std::function<void()> checked;
  std::function<Status(Arena&)> remake;
};

// Derived weights that are converted from the checkpoint.
struct StreamedConversion {
  std::vector<DerivedPiece> pieces;  // in the order of their stages
  // On any thread, once for each piece.
  std::function<Status(const DerivedPiece&, const Arena&)> convert;
  // Called once on the engine's thread, when all pieces are converted.
  std::function<Status(Arena&)> finish;
};

class WeightStream {
 public:
  // `section`: without bytes, nothing is checked; `conversion`: without pieces, nothing is
  // converted. REQUIRES: the pool outlives the stream.
  WeightStream(std::span<const WeightStage> stages, StreamedSection section,
               StreamedConversion conversion, ThreadPool& pool);
  ~WeightStream();
  WeightStream(const WeightStream&) = delete;
  WeightStream& operator=(const WeightStream&) = delete;

  // Starts to read and convert. REQUIRES: the weights are mapped in `arena`, which stays where it
  // is and lives as long as the stream.
  void start(Arena& arena);

  // Returns when the weights of a stage (WeightsLayout::stages) may be used. Stages are waited for
  // in their order. An error: weights could not be converted, or were damaged and could not be made
  // natively. REQUIRES: started, where something is converted.
  Status wait(std::size_t stage);
  // Waits for everything.
  Status finish();
  // Whether no step needs to wait any more.
  bool finished() const { return finished_; }
  // Finishes if everything has been read.
  Status poll();

  // Whether the section was damaged and its range has other memory now.
  bool remade() const { return remade_; }
  const std::byte* section_begin() const { return section_.bytes.data(); }
  std::uint64_t bytes() const { return bytes_; }  // to be read

 private:
  // Bytes that are read, and checked or converted, as one.
  struct Item {
    std::span<const std::byte> bytes;
    const Hash128* expected = nullptr;
    const DerivedPiece* conversion = nullptr;
  };
  enum class State : std::uint8_t { kWaiting, kTaken, kDone };

  void add_mapped(std::span<const std::byte> bytes);
  void add_pieces(const WeightsRange& derived, std::size_t& next_piece);
  void add_conversions(std::size_t stage, std::size_t& next_piece);
  void read_all();
  bool is_for_steps(const Item& item) const;
  void bring_in(std::size_t item);
  void convert(const DerivedPiece& piece);
  void bring_in_until(std::size_t end);
  void stop_reader();
  Status end();

  StreamedSection section_;
  StreamedConversion conversion_;
  ThreadPool& pool_;
  std::vector<Item> items_;
  std::vector<std::size_t> stage_ends_;  // items, by stage
  std::unique_ptr<std::atomic<State>[]> states_;
  std::atomic<std::size_t> done_{0};
  std::atomic<bool> damaged_{false};
  std::atomic<bool> step_began_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;                 // of the next member
  Status converted_;                 // the first error
  std::atomic<bool> failed_{false};  // converted_ is an error
  std::thread reader_;
  Arena* arena_ = nullptr;
  std::size_t passed_ = 0;  // items that steps may use
  std::uint64_t bytes_ = 0;
  bool finished_ = false;
  bool remade_ = false;
  Status status_;
};

}  // namespace sluice
