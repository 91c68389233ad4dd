// KvStream: the KV of one sequence that does not fit into memory, in a file, by layers and pieces.
// The file has no name: it is gone when the process is. Each piece is encrypted with AES-256-GCM
// under a key that only this object knows, and a tag in memory proves it, its layer and its place:
// a load gives exactly what was saved, or fails.
//
// Threads of its own read and write, with O_DIRECT where the filesystem has it. Each call is for
// the engine's thread. Errors name the folder and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "offload/file_io.h"

namespace sluice {

class KvStream {
 public:
  // The size of a piece is a multiple of it.
  static constexpr std::int64_t kAlignment = 4096;

  struct Options {
    std::string folder;                                   // exists
    std::uint64_t max_bytes = 0;                          // of the file
    std::uint64_t free_bytes = 0;                         // that the filesystem keeps free
    std::uint64_t read_bytes = std::uint64_t{512} << 10;  // of one read, at most
    int threads = 4;
    bool direct = true;  // O_DIRECT, where it is there
    // Replaced by tests. Options are copied, so the object is shared.
    std::shared_ptr<const FileIo> io = std::make_shared<FileIo>();  // shared with copies
  };

  // A piece: `slices` slices of `slice_bytes` bytes.
  struct Shape {
    std::int32_t layers = 0;
    std::int32_t pieces = 0;  // of a layer, at most
    std::int32_t slices = 0;
    std::int64_t slice_bytes = 0;

    std::int64_t piece_bytes() const { return slices * slice_bytes; }
    std::uint64_t file_bytes() const {
      return static_cast<std::uint64_t>(layers) * static_cast<std::uint64_t>(pieces) *
             static_cast<std::uint64_t>(piece_bytes());
    }
  };

  // Pieces [first, first + count) of a layer.
  struct Range {
    std::int32_t layer = 0;
    std::int32_t first = 0;
    std::int32_t count = 0;
  };

  // Loads or saves that end together. It is used again after wait().
  class Batch {
   public:
    Batch();
    ~Batch();  // REQUIRES: nothing is under way

   private:
    friend class KvStream;
    struct State;
    std::unique_ptr<State> state_;
  };

  explicit KvStream(Options options);
  ~KvStream();  // REQUIRES: no batch is under way

  const Options& options() const;

  // Makes the file, with room for all, in the place of an earlier one. kResourceExhausted when it
  // would be larger than max_bytes, or the filesystem has too little room. REQUIRES: no batch is
  // under way; piece_bytes() is a multiple of kAlignment.
  Status begin(const Shape& shape);
  // Gives the room on the disk back. REQUIRES: as begin().
  void end();

  // Start to move the slices of a range: the addresses of slice 0 of the first piece, slice 1, and
  // so on. They, and the span, stay untouched until the batch has ended. REQUIRES: pieces that are
  // loaded have been saved, and their save was waited for.
  void load(Batch& batch, const Range& range, std::span<std::byte* const> slices);
  void save(Batch& batch, const Range& range, std::span<std::byte* const> slices);
  // Waits until the batch has ended. The first error of it, if there was one.
  Status wait(Batch& batch);
  // Returns whether the batch has ended by then.
  bool wait_for(Batch& batch, Duration at_most);

  // Since the start.
  struct Bytes {
    std::int64_t loaded = 0;
    std::int64_t saved = 0;

    bool operator==(const Bytes&) const = default;
  };
  Bytes bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
