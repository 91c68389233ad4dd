// CheckpointFile: a file that holds tensors of a checkpoint, open and mapped read-only, whatever
// its format: what the engine needs to map it into an arena, to watch it and to hash it. Its reader
// (safetensors.h, gguf.h) says where the header lies.
// A file may also be made in memory, of tensors that the checkpoint's other files hold in another
// form.
// Owner: the checkpoint. Threads: immutable once it is made; any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/result.h"

namespace sluice {

class CheckpointFile {
 public:
  static Result<CheckpointFile> open(const std::string& path);
  // `write` fills `bytes` bytes. `name` takes the place of the path in messages.
  static Result<CheckpointFile> make(const std::string& name, std::size_t bytes,
                                     FunctionRef<void(std::span<std::byte>)> write);

  const std::string& path() const { return path_; }
  // The descriptor stays open as long as the object lives, for Arena::map.
  int fd() const { return file_.fd.get(); }
  std::uint64_t size() const { return file_.size; }
  std::span<const std::byte> bytes() const { return mapping_.bytes(); }
  // Whether bytes were missing when they were read: the file was truncated.
  bool faulted() const { return mapping_.faulted(); }
  // Made by make(): all that it holds follows from the other files.
  bool made() const { return made_; }
  // The header without what precedes it, and the offset where the header ends.
  std::span<const std::byte> header() const {
    return bytes().subspan(header_begin_, header_end_ - header_begin_);
  }
  std::size_t header_end() const { return header_end_; }
  // REQUIRES: begin <= end <= size.
  void set_header(std::size_t begin, std::size_t end);
  // Bytes of the file. REQUIRES: they lie in it.
  std::span<const std::byte> range(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  CheckpointFile() = default;

  std::string path_;
  OpenedFile file_;
  MappedFile mapping_;
  std::size_t header_begin_ = 0;
  std::size_t header_end_ = 0;
  bool made_ = false;
};

}  // namespace sluice
