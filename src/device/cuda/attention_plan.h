// Plans a step's attention on a GPU: writes the work list of kernels/attention_work.h. The list
// keeps a fixed number of blocks of threads busy, in one captured launch, with any mix of prefill
// chunks and decodes. Long contexts are cut along KV where a step has too few tiles to fill the
// GPU. The cuts change no bit of a result. Pure functions of lengths; nothing is allocated. Any
// thread.
#pragma once

#include <cstdint>

#include "device/cuda/kernels/attention_work.h"
#include "device/op_params.h"
#include "device/padding.h"

namespace sluice::cuda {

// The size that suffices for every step within the limits. Partial results follow plan_bytes, at
// most 64 MiB of them; if that is too little, only the longest tiles are cut.
AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits);

// Writes the plan of a step for a grid of `blocks` and returns the number of bytes used.
// CHECKs that the step keeps `p.limits`.
std::int64_t write_attention_plan(const AttentionPlanParams& p, std::int32_t blocks);

// Counts the pairs of a layer for the kernel on tensor cores: each warp with rows of a tile
// computes 16 rows by 32 keys in every step in which one of its rows sees a key.
Work attention_work(const AttentionPlanParams& p);

}  // namespace sluice::cuda
