// The list of kernels and of the files that they are compiled from. Ids (kernel_launch.h), names,
// symbols and parameter sizes (kernel_set.h) and, in tests, calls on the host are generated from
// it. The lists are macros because they name symbols.
// Values: constants.
#pragma once

// KERNEL's last argument uses kernels/attention_work.h and kernels/matmul_tiles.h.

// CODE(file): device code of kernels/file.cu.
#define SLUICE_DEVICE_CODES(CODE) \
  CODE(rows)                      \
  CODE(attention)                 \
  CODE(matmul)                    \
  CODE(sampling)                  \
  CODE(matmul_stream)             \
  CODE(matmul_tile)               \
  CODE(paged_attention)           \
  CODE(lora)                      \
  CODE(matmul_stream_fp8)         \
  CODE(matmul_tile_fp8)

// KERNEL(id, name, file, parameters, shared): the kernel sluice_name of kernels/file.cu, which
// takes a struct of parameters and uses up to `shared` bytes of dynamic shared memory.
#define SLUICE_KERNELS(KERNEL)                                                                    \
  KERNEL(kEmbed, embed, rows, EmbedParams, 0)                                                     \
  KERNEL(kRmsNorm, rms_norm, rows, RmsNormParams, 0)                                              \
  KERNEL(kLayerNorm, layer_norm, rows, LayerNormParams, 0)                                        \
  KERNEL(kMatmul, matmul, matmul, MatmulParams, 0)                                                \
  KERNEL(kRopeWriteKv, rope_write_kv, attention, RopeWriteKvParams, 0)                            \
  KERNEL(kAttention, attention, attention, AttentionParams, 0)                                    \
  KERNEL(kGatedActivation, gated_activation, rows, GatedActivationParams, 0)                      \
  KERNEL(kGatherRows, gather_rows, rows, GatherRowsParams, 0)                                     \
  KERNEL(kCopyBlocks, copy_blocks, rows, CopyBlocksParams, 0)                                     \
  KERNEL(kSample, sample, sampling, SampleParams, 0)                                              \
  KERNEL(kMatmul8, matmul_8, matmul_stream, MatmulParams, 0)                                      \
  KERNEL(kMatmul16, matmul_16, matmul_stream, MatmulParams, 0)                                    \
  KERNEL(kMatmul64, matmul_64, matmul_tile, MatmulParams, kTile64.shared_bytes())                 \
  KERNEL(kMatmul128, matmul_128, matmul_tile, MatmulParams, kTile128.shared_bytes())              \
  KERNEL(kAttentionBf16D64, attention_bf16_64, paged_attention, AttentionParams,                  \
         attention_shared_bytes(64))                                                              \
  KERNEL(kAttentionBf16D128, attention_bf16_128, paged_attention, AttentionParams,                \
         attention_shared_bytes(128))                                                             \
  KERNEL(kAttentionBf16D256, attention_bf16_256, paged_attention, AttentionParams,                \
         attention_shared_bytes(256))                                                             \
  KERNEL(kAttentionF16D64, attention_f16_64, paged_attention, AttentionParams,                    \
         attention_shared_bytes(64))                                                              \
  KERNEL(kAttentionF16D128, attention_f16_128, paged_attention, AttentionParams,                  \
         attention_shared_bytes(128))                                                             \
  KERNEL(kAttentionF16D256, attention_f16_256, paged_attention, AttentionParams,                  \
         attention_shared_bytes(256))                                                             \
  KERNEL(kMatmul16Narrow, matmul_16_narrow, matmul_stream, MatmulParams, 0)                       \
  KERNEL(kGatedMatmul, gated_matmul, matmul, GatedMatmulParams, 0)                                \
  KERNEL(kGatedMatmul8, gated_matmul_8, matmul_stream, GatedMatmulParams, 0)                      \
  KERNEL(kGatedMatmul16, gated_matmul_16, matmul_stream, GatedMatmulParams, 0)                    \
  KERNEL(kGatedMatmul64, gated_matmul_64, matmul_tile, GatedMatmulParams, kTile64.shared_bytes()) \
  KERNEL(kGatedMatmul128, gated_matmul_128, matmul_tile, GatedMatmulParams,                       \
         kTile128.shared_bytes())                                                                 \
  KERNEL(kLoraShrink, lora_shrink, lora, LoraShrinkParams, 0)                                     \
  KERNEL(kLoraShrinkPlain, lora_shrink_plain, lora, LoraShrinkParams, 0)                          \
  KERNEL(kLoraExpand, lora_expand, lora, LoraExpandParams, 0)                                     \
  KERNEL(kMatmulFp8By8, matmul_fp8_8, matmul_stream_fp8, MatmulParams, 0)                         \
  KERNEL(kMatmulFp8By16, matmul_fp8_16, matmul_stream_fp8, MatmulParams, 0)                       \
  KERNEL(kMatmulFp8By16Narrow, matmul_fp8_16_narrow, matmul_stream_fp8, MatmulParams, 0)          \
  KERNEL(kMatmulFp8By64, matmul_fp8_64, matmul_tile_fp8, MatmulParams, kFp8Tile64.shared_bytes()) \
  KERNEL(kMatmulFp8By128, matmul_fp8_128, matmul_tile_fp8, MatmulParams,                          \
         kFp8Tile128.shared_bytes())                                                              \
  KERNEL(kGatedMatmulFp8By8, gated_matmul_fp8_8, matmul_stream_fp8, GatedMatmulParams, 0)         \
  KERNEL(kGatedMatmulFp8By16, gated_matmul_fp8_16, matmul_stream_fp8, GatedMatmulParams, 0)       \
  KERNEL(kGatedMatmulFp8By64, gated_matmul_fp8_64, matmul_tile_fp8, GatedMatmulParams,            \
         kFp8Tile64.shared_bytes())                                                               \
  KERNEL(kGatedMatmulFp8By128, gated_matmul_fp8_128, matmul_tile_fp8, GatedMatmulParams,          \
         kFp8Tile128.shared_bytes())
