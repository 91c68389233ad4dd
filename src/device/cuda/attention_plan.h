// The plan of a step's attention on a GPU: the work list of kernels/attention_work.h, so that a
// fixed number of blocks of threads, in one captured launch, is kept busy by any mix of prefill
// chunks and decodes. Long contexts are cut along KV where a step has too few tiles to fill the
// GPU. How they are cut changes no bit of a result.
// Pure functions of lengths; nothing is allocated. Any thread.
#pragma once

#include <cstdint>

#include "device/cuda/kernels/attention_work.h"
#include "device/op_params.h"
#include "device/padding.h"

namespace sluice::cuda {

// Enough for every step within the limits. What lies behind plan_bytes holds partial results, at
// most 64 MiB of them: where they do not suffice, only the longest tiles are cut.
AttentionPlanSize attention_plan_size(const AttentionPlanLimits& limits);

// Writes the plan of a step for a grid of `blocks`; returns how many bytes of it are used.
// CHECKs that the step keeps the limits that `p.limits` were given for.
std::int64_t write_attention_plan(const AttentionPlanParams& p, std::int32_t blocks);

// Pairs of a layer by the kernel on tensor cores: each warp that has rows of a tile takes 16 of
// them against steps of 32 keys, as long as one of its rows sees something.
Work attention_work(const AttentionPlanParams& p);

}  // namespace sluice::cuda
