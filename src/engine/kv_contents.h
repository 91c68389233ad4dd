// KvContents: the bytes of whole KV blocks, for contents that are kept beyond the process. The
// model runner implements it.
// Owner: the engine's executor. Threads: the engine's thread. REQUIRES to read or write: no step is
// in flight, and the block is backed. Errors are the device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/stream_shape.h"
#include "offload/kv_stream.h"
#include "offload/kv_tier.h"

namespace sluice {

class KvContents {
 public:
  virtual ~KvContents() = default;
  virtual std::size_t block_bytes() const = 0;
  // Both wait until the bytes are copied, and take block_bytes() of them.
  virtual Status read_block(BlockId id, std::span<std::byte> out) = 0;
  virtual Status write_block(BlockId id, std::span<const std::byte> contents) = 0;
  // Plans may name transfers to and from this tier from now on. Errors: there is no host memory
  // through which blocks could pass. REQUIRES: no plan was submitted yet.
  virtual Status use_tier(std::unique_ptr<KvTier> tier) = 0;
  // Plans may stream the KV of sequences that this shape allows, through a file. kUnsupported if
  // the device cannot, kInvalidArgument if the file would hold no sequence. REQUIRES: as
  // use_tier().
  virtual Result<StreamShape> use_stream(const KvStream::Options& options) = 0;
  // That streams have read and written since the start.
  virtual KvStream::Bytes streamed_bytes() const = 0;
  // KvTier::memory_bytes(); 0 without a tier.
  virtual std::int64_t tier_memory_bytes() const = 0;
  // KvTier::levels().
  virtual TierLevels tier_levels() const = 0;
};

}  // namespace sluice
