// Op images: lists of ops as bytes without an address in them. Each pointer is stored as the name
// of its buffer in the arena and an offset, so an image that one process made is read by another,
// whose arena may lie at another base. An op is stored as its differences from the op at the same
// place of the list before it, so lists of one forward for many capacities are small.
//
// Decoding trusts nothing: kInvalidArgument, naming list, op and field, unless every op is known,
// every pointer lies in a buffer of the arena and every tensor ends within its buffer. That does
// not say that the ops are those of this model: the caller compares the lists with its own.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/hash128.h"
#include "base/result.h"
#include "device/arena.h"
#include "device/op_list.h"

namespace sluice {

// kInternal, naming op and field, for a pointer into no buffer of the arena.
Result<std::vector<std::byte>> encode_op_lists(std::span<const OpList* const> lists,
                                               const Arena& arena);

Result<std::vector<OpList>> decode_op_lists(std::span<const std::byte> image, const Arena& arena);

// Changes whenever an op, a field, or the meaning of the image changes.
Hash128 op_image_identity();

}  // namespace sluice
