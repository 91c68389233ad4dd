// SealedAdapter: an adapter image in sealed shared memory, which function processes map read-only
// and compute on where it lies. One memory holds all of it:
//
//   magic, version | dtype, digest | count; rank, scale, gains (0, 1) of each entry | padding |
//   bytes
//
// The bytes begin at a multiple of kSealedAlignment. Offsets do not travel: ranks and the model's
// shapes say them, and the memory must have exactly the size that follows. Decoding does not
// compute the digest again: the seals keep what the writer has written.
// Functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "adapter/adapter_image.h"
#include "base/file.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace sluice {

inline constexpr std::size_t kSealedAlignment = 4096;
inline constexpr std::uint32_t kSealedAdapterVersion = 2;

struct SealedAdapter {
  AdapterImage image;     // its bytes are a mapping of the memory
  FileDescriptor memory;  // read-only
};

// Copies the image into shared memory and seals it. `stop`: called after each small part of the
// work.
Result<SealedAdapter> seal_adapter(const AdapterImage& image, DType dtype,
                                   const StopCheck& stop = {});

// Puts the bytes of a sealed adapter of another machine into sealed memory of this one. Errors: as
// of open_sealed_adapter().
Result<SealedAdapter> seal_adapter_bytes(std::span<const std::byte> bytes,
                                         const ModelConfig& config, DType dtype);

// Maps a sealed adapter. kInvalidArgument, with the field, if it is not one for this model and
// dtype, or if a seal is missing.
Result<AdapterImage> open_sealed_adapter(const FileDescriptor& memory, const ModelConfig& config,
                                         DType dtype);

// The same for bytes that the caller keeps: the image refers to `memory`.
Result<AdapterImage> decode_sealed_adapter(std::span<const std::byte> memory,
                                           const ModelConfig& config, DType dtype);

}  // namespace sluice
