// Tensor names of GGUF files in those of Hugging Face checkpoints, by which model families are
// described (families.h), and the order of rows in which GGUF files of the architecture "llama"
// hold the query and key projections. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". Nothing for an unknown name.
std::optional<std::string> checkpoint_name(std::string_view gguf_name);

// Whether the rows of a tensor (given by its GGUF name) are in pairs in a "llama" file: those of
// the weights and biases of queries and keys.
bool has_paired_rows(std::string_view gguf_name);

// A rotation turns elements i and i + head_dim / 2 of a head together. GGUF files of "llama" store
// them as neighbours. Returns the row of the file that is row `row` of the checkpoint.
// REQUIRES: head_dim is even.
constexpr std::int64_t paired_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t place = row % head_dim;
  const std::int64_t half = head_dim / 2;
  return row - place + place % half * 2 + place / half;
}

}  // namespace sluice
