// The ops that treat each row, or each KV block, by itself. One block of threads per row.
#include "device/cuda/kernels/elements.cuh"
#include "device/cuda/kernels/norms.cuh"

namespace sluice::cuda {

extern "C" __global__ void sluice_embed(const EmbedParams p) {
  const std::int32_t row = static_cast<std::int32_t>(blockIdx.x);
  if (row >= rows_in_use(p.rows)) return;
  std::int32_t id = p.token_ids[row];
  if (id < 0 && p.last_tokens != nullptr) id = p.last_tokens[-1 - id];
  if (id < 0 || id >= p.table.dims[0]) __trap();
  for (std::int64_t i = threadIdx.x; i < p.out.dims[1]; i += blockDim.x) {
    store_element(p.out, row, i, load_element(p.table, id, i));
  }
}

extern "C" __global__ void __launch_bounds__(kMaxNormThreads, 2)
    sluice_rms_norm(const RmsNormParams p) {
  __shared__ float partial[kWarp];
  norm_kernel(p, partial);
}

extern "C" __global__ void __launch_bounds__(kMaxNormThreads)
    sluice_layer_norm(const LayerNormParams p) {
  __shared__ float partial[kWarp];
  norm_kernel(p, partial);
}

extern "C" __global__ void sluice_gated_activation(const GatedActivationParams p) {
  const std::int32_t row = static_cast<std::int32_t>(blockIdx.x);
  if (row >= rows_in_use(p.rows)) return;
  const std::int64_t width = p.out.dims[1];
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float gate = load_element(p.gate_up, row, i);
    const float up = load_element(p.gate_up, row, width + i);
    store_element(p.out, row, i, gated(p.activation, gate, up));
  }
}

extern "C" __global__ void sluice_gather_rows(const GatherRowsParams p) {
  const std::int32_t row = static_cast<std::int32_t>(blockIdx.x);
  if (row >= rows_in_use(p.rows)) return;
  const std::int32_t from = p.indices[row];
  if (from < 0 || from >= p.in.dims[0]) __trap();
  for (std::int64_t i = threadIdx.x; i < p.out.dims[1]; i += blockDim.x) {
    store_element(p.out, row, i, load_element(p.in, from, i));
  }
}

// A thread copies the same 16 bytes of every pair, pair by pair. So pairs take effect in order,
// even if one pair's target is another pair's source.
extern "C" __global__ void sluice_copy_blocks(const CopyBlocksParams p) {
  const std::int64_t at = 16 * (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (at >= p.block_bytes) return;
  const std::int64_t left = p.block_bytes - at;
  const bool aligned = left >= 16 && p.block_bytes % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(p.kv_base) % 16 == 0;
  char* base = static_cast<char*>(p.kv_base) + at;
  const std::int32_t count = rows_in_use(p.rows);
  for (std::int32_t i = 0; i < count; ++i) {
    const char* source = base + p.pairs[2 * i] * p.block_bytes;
    char* target = base + p.pairs[2 * i + 1] * p.block_bytes;
    if (aligned) {
      *reinterpret_cast<int4*>(target) = *reinterpret_cast<const int4*>(source);
      continue;
    }
    for (std::int64_t b = 0; b < 16 && b < left; ++b) target[b] = source[b];
  }
}

}  // namespace sluice::cuda
