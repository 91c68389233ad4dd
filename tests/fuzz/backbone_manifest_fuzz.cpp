// Manifests of backbones: the input itself. Whatever decodes has all its places inside the
// backbone, and encodes to a manifest that is equal.
#include <cstddef>
#include <cstdint>
#include <span>

#include "backbone/manifest.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  const auto manifest = decode_manifest(std::as_bytes(std::span(data, size)));
  if (!manifest) {
    CHECK(!manifest.error().message.empty());
    return 0;
  }
  for (const TensorPlace& place : manifest->tensors) {
    CHECK(place.rank == 0 || place.offset < manifest->bytes);
  }
  const auto again = decode_manifest(encode_manifest(*manifest));
  CHECK(again.has_value() && *again == *manifest);
  return 0;
}
