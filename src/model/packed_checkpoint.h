// A checkpoint whose matrices were quantized to integers by other tools (GPTQ, AWQ, compressed-
// tensors), as a checkpoint of blocks: "x.qweight" and its scales and zero points become the tensor
// "x.weight", so that no reader behind this knows where it came from. The blocks lie in a file in
// memory. If columns are not in the order of their groups, the blocks' are, and the tensor
// "x.weight_order" is MatmulSegment::order. Elements keep their values; sizes are stated in
// docs/quantization.md. Peak memory: the blocks, and the tensors of one matrix. Errors name the
// file and the tensor. Threads: repacking splits over the pool.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "model/model_config.h"

namespace sluice {

enum class Repacking {
  kFull,
  kNamesOnly,  // the blocks are zeros: for questions about types, shapes and digests
};

// Follows the name of a matrix.
inline constexpr std::string_view kOrderSuffix = "_order";

// kNotFound if no tensor has the form, or if a part of a matrix is missing; kInvalidArgument for
// shapes and numbers that do not fit together; kUnsupported for a form that no block type holds.
Result<Checkpoint> repack_checkpoint(Checkpoint checkpoint, const WeightPacking& form,
                                     ThreadPool& pool, Repacking repacking);

}  // namespace sluice
