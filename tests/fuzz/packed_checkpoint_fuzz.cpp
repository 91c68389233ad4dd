// Checkpoints of packed matrices: the input is the form that config.json would describe (5 bytes),
// then a safetensors file. A repacked matrix lies in its file, row by row in whole blocks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/packed_checkpoint.h"
#include "tensor/gguf_blocks.h"

namespace {

sluice::WeightPacking form_of(const std::uint8_t* data) {
  sluice::WeightPacking form;
  form.packing = static_cast<sluice::Packing>(data[0] % 5);
  form.bits = form.packing == sluice::Packing::kPlainInt8 || data[1] % 2 == 1 ? 8 : 4;
  if (form.packing == sluice::Packing::kAwq) form.bits = 4;
  form.group_size = data[2] | data[3] << 8;
  form.zero_points = data[4] % 2 == 1;
  return form;
}

// Each column once.
void check_order(const sluice::Checkpoint& checkpoint, const sluice::TensorInfo& tensor) {
  const auto bytes = checkpoint.data(tensor);
  std::vector<std::int32_t> order(bytes.size() / sizeof(std::int32_t));
  std::memcpy(order.data(), bytes.data(), bytes.size());
  CHECK(std::ssize(order) == tensor.shape[0]);
  std::ranges::sort(order);
  for (std::size_t k = 0; k < order.size(); ++k) CHECK(order[k] == static_cast<std::int32_t>(k));
}

void check_blocks(const sluice::Checkpoint& checkpoint) {
  for (const sluice::TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.file == 0) continue;
    if (tensor.name.ends_with(sluice::kOrderSuffix)) {
      check_order(checkpoint, tensor);
      continue;
    }
    const auto type = sluice::weight_dtype(tensor);
    CHECK(type && sluice::is_blocks(*type));
    CHECK(tensor.name.ends_with(".weight") && tensor.shape.size() == 2);
    const std::int64_t row_bytes = sluice::bytes_of(*type, tensor.shape[1]);
    const auto bytes = checkpoint.data(tensor);
    CHECK(bytes.size() == static_cast<std::size_t>(tensor.shape[0] * row_bytes));
    const auto last = static_cast<std::size_t>((tensor.shape[0] - 1) * row_bytes);
    static_cast<void>(sluice::block_element(*type, bytes.data() + last, tensor.shape[1] - 1));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kFormBytes = 5;
  std::uint64_t length = 0;
  if (size < kFormBytes + sizeof(length)) return 0;
  const sluice::WeightPacking form = form_of(data);
  const std::span<const std::uint8_t> file(data + kFormBytes, size - kFormBytes);
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) return 0;
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + sizeof(length),
                                static_cast<std::size_t>(length));
  auto tensors = sluice::parse_safetensors_header(header, file.size(), 0);
  if (!tensors) return 0;
  auto made = sluice::CheckpointFile::make("input", file.size(), [&](std::span<std::byte> memory) {
    std::memcpy(memory.data(), file.data(), file.size());
  });
  if (!made) return 0;
  std::vector<sluice::CheckpointFile> files;
  files.push_back(*std::move(made));
  sluice::ThreadPool pool(1);
  const auto repacked = sluice::repack_checkpoint(
      sluice::Checkpoint::from_files("input", std::move(files), *std::move(tensors)), form, pool,
      sluice::Repacking::kFull);
  if (repacked) {
    check_blocks(*repacked);
  } else {
    CHECK(!repacked.error().message.empty());
  }
  return 0;
}
