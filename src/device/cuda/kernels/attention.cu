// RoPE with the write into the KV cache, and attention over block tables.
#include "device/cuda/kernels/elements.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMaxHeadDim = 256;  // CudaOps refuses more
constexpr int kMaxPerLane = kMaxHeadDim / kWarp;

// Index, in elements, of a key or value vector.
__device__ std::int64_t kv_index(const KvLayerView& kv, std::int64_t block, std::int64_t offset,
                                 std::int64_t head) {
  return block * kv.block_stride + head * kv.head_stride + offset * kv.token_stride;
}

__device__ std::int64_t position_index(const KvLayerView& kv, const std::int32_t* table,
                                       std::int32_t position, std::int32_t head) {
  return kv_index(kv, table[position / kv.block_size], position % kv.block_size, head);
}

// The scaled product of a query and the key at `index`.
__device__ float score_of(const AttentionParams& p, const float* query, std::int64_t index) {
  float score = 0.0F;
  for (std::int32_t d = 0; d < p.head_dim; ++d) {
    score = fmaf(query[d], load_element(p.kv.k_base, p.kv.dtype, index + d), score);
  }
  return score * p.scale;
}

// The row of `token`: the last row whose first token is at or before it. If several rows have the
// same first token, only the last of them has tokens. REQUIRES: some row has the token.
__device__ std::int32_t row_of_token(const std::int32_t* cu_seqlens, std::int32_t rows,
                                     std::int32_t token) {
  std::int32_t low = 0;
  std::int32_t high = rows;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (cu_seqlens[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

// One block of threads per token and head: queries, then keys, then values.
extern "C" __global__ void sluice_rope_write_kv(const RopeWriteKvParams p) {
  __shared__ float head_values[kMaxHeadDim];
  __shared__ float partial[kWarp];
  const std::int32_t token = static_cast<std::int32_t>(blockIdx.x);
  if (token >= rows_in_use(p.rows)) return;
  const std::int32_t head = static_cast<std::int32_t>(blockIdx.y);
  const bool is_query = head < p.num_heads;
  const bool is_value = head >= p.num_heads + p.num_kv_heads;
  const DType wide = p.qkv.dtype;
  const std::int64_t column = static_cast<std::int64_t>(head) * p.head_dim;
  const std::int32_t begin = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t step = static_cast<std::int32_t>(blockDim.x);

  float squares = 0.0F;
  for (std::int32_t i = begin; i < p.head_dim; i += step) {
    head_values[i] = load_element(p.qkv, token, column + i);
    squares = fmaf(head_values[i], head_values[i], squares);
  }
  const TensorView& norm = is_query ? p.q_norm : p.k_norm;
  if (!is_value && norm.data != nullptr) {
    squares = block_sum(squares, partial);
    const float scale = 1.0F / sqrtf(squares / static_cast<float>(p.head_dim) + p.norm_epsilon);
    for (std::int32_t i = begin; i < p.head_dim; i += step) {
      const float weight = load_element(norm.data, norm.dtype, i);
      head_values[i] = rounded_to(wide, head_values[i] * scale * weight);
    }
  }
  __syncthreads();
  const std::int32_t half = p.rotary_dim / 2;
  if (!is_value && half > 0) {
    const float* cosines = p.cos_sin + static_cast<std::int64_t>(p.positions[token]) * p.rotary_dim;
    const float* sines = cosines + half;
    for (std::int32_t i = begin; i < half; i += step) {
      const float low = head_values[i];
      const float high = head_values[half + i];
      head_values[i] = rounded_to(wide, fmaf(low, cosines[i], -(high * sines[i])));
      head_values[half + i] = rounded_to(wide, fmaf(high, cosines[i], low * sines[i]));
    }
  }
  __syncthreads();
  if (is_query) {
    for (std::int32_t i = begin; i < p.head_dim; i += step) {
      store_element(p.qkv, token, column + i, head_values[i]);
    }
    return;
  }
  const std::int64_t slot = p.slot_mapping[token];
  const std::int32_t kv_head = (head - p.num_heads) % p.num_kv_heads;
  const std::int64_t at = kv_index(p.kv, slot / p.kv.block_size, slot % p.kv.block_size, kv_head);
  void* base = is_value ? p.kv.v_base : p.kv.k_base;
  for (std::int32_t i = begin; i < p.head_dim; i += step) {
    store_element(base, p.kv.dtype, at + i, head_values[i]);
  }
}

// One warp per token and query head. Positions are taken 32 at a time, from multiples of 32 on.
// Each lane scores one of them. Then each lane adds its elements of their values, position by
// position, with a running maximum and sum. Absolute positions alone fix the order, so a token's
// output does not depend on its batch or on how its prompt was cut. Values of positions that are
// not seen are not read.
extern "C" __global__ void __launch_bounds__(kWarp) sluice_attention(const AttentionParams p) {
  __shared__ float query[kMaxHeadDim];
  __shared__ float weights[kWarp];
  const std::int32_t rows = rows_in_use(p.seqs);
  const std::int32_t token = static_cast<std::int32_t>(blockIdx.x);
  if (rows == 0 || token >= p.cu_seqlens_q[rows]) return;
  const std::int32_t row = row_of_token(p.cu_seqlens_q, rows, token);
  const std::int32_t query_len = p.cu_seqlens_q[row + 1] - p.cu_seqlens_q[row];
  const std::int32_t last = p.seq_lens[row] - query_len + (token - p.cu_seqlens_q[row]);
  const std::int32_t first = p.window > 0 && last >= p.window ? last - p.window + 1 : 0;
  const std::int32_t* table =
      p.block_tables + static_cast<std::int64_t>(p.row_slots[row]) * p.table_stride;
  const std::int32_t head = static_cast<std::int32_t>(blockIdx.y);
  const std::int32_t kv_head = head / (p.num_heads / p.num_kv_heads);
  const std::int64_t column = static_cast<std::int64_t>(head) * p.head_dim;
  const int lane = static_cast<int>(threadIdx.x);

  for (int d = lane; d < p.head_dim; d += kWarp) query[d] = load_element(p.q, token, column + d);
  __syncwarp();
  float sum[kMaxPerLane] = {};  // of elements lane, lane + 32, ...
  float largest = -INFINITY;
  float total = 0.0F;
  for (std::int32_t begin = first - first % kWarp; begin <= last; begin += kWarp) {
    const std::int32_t own = begin + lane;
    const bool seen = own >= first && own <= last;
    const float score =
        seen ? score_of(p, query, position_index(p.kv, table, own, kv_head)) : -INFINITY;
    const float now_largest = fmaxf(largest, warp_max(score));
    const float fade = largest == now_largest ? 1.0F : expf(largest - now_largest);
    const float weight = seen ? expf(score - now_largest) : 0.0F;
    largest = now_largest;
    total = fmaf(total, fade, warp_sum(weight));
    weights[lane] = weight;
    __syncwarp();
    for (int i = 0; i < kMaxPerLane; ++i) sum[i] *= fade;
    const std::int32_t from = begin < first ? first : begin;
    const std::int32_t to = begin + kWarp - 1 < last ? begin + kWarp - 1 : last;
    for (std::int32_t position = from; position <= to; ++position) {
      const std::int64_t at = position_index(p.kv, table, position, kv_head);
      const float share = weights[position - begin];
      for (int i = 0; i < kMaxPerLane; ++i) {
        const int d = lane + i * kWarp;
        if (d < p.head_dim) {
          sum[i] = fmaf(share, load_element(p.kv.v_base, p.kv.dtype, at + d), sum[i]);
        }
      }
    }
    __syncwarp();  // all have read the weights
  }
  for (int i = 0; i < kMaxPerLane; ++i) {
    const int d = lane + i * kWarp;
    if (d < p.head_dim) store_element(p.out, token, column + d, sum[i] / total);
  }
}

}  // namespace sluice::cuda
