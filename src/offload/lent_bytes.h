// LentBytes: what one lender gave, reached by copies only: a lender may change or take it
// meanwhile, without any effect but on what is read. Two kinds: a file of memory (here), and chunks
// of a device. Owner: LentMemory. Threads: any, for different bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

class LentBytes {
 public:
  virtual ~LentBytes() = default;
  virtual Status write(std::uint64_t offset, std::span<const std::byte> source) = 0;
  virtual Status read(std::uint64_t offset, std::span<std::byte> target) = 0;
};

std::unique_ptr<LentBytes> lent_file(FileDescriptor file);

}  // namespace sluice
