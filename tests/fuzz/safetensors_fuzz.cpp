// Safetensors headers. The input is a file of the format itself: 8 bytes of length, a header, data.
// An accepted file has every property that the rest of the program relies on.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using sluice::TensorInfo;
  // The fuzzer chooses the length field, within the limits that open() checks.
  std::uint64_t length = 0;
  if (size < sizeof(length)) return 0;
  std::memcpy(&length, data, sizeof(length));
  const std::string_view rest(reinterpret_cast<const char*>(data) + 8, size - 8);
  if (length > rest.size()) return 0;
  const auto tensors =
      sluice::parse_safetensors_header(rest.substr(0, static_cast<std::size_t>(length)), size, 0);
  if (!tensors) {
    CHECK(!tensors.error().message.empty());
    return 0;
  }
  const TensorInfo* previous = nullptr;
  std::uint64_t total = 0;
  for (const TensorInfo& tensor : *tensors) {
    CHECK(tensor.offset >= 8 + length && tensor.offset <= size);
    CHECK(tensor.bytes <= size - tensor.offset);
    CHECK(previous == nullptr || previous->name < tensor.name);
    for (const std::int64_t dim : tensor.shape) CHECK(dim >= 0);
    // Ranges do not overlap, so together they fit into the data.
    total += tensor.bytes;
    CHECK(total <= size - 8 - length);
    static_cast<void>(sluice::weight_dtype(tensor));
    previous = &tensor;
  }
  return 0;
}
