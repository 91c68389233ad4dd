// The cache of file digests. Accepted entries survive another round of encoding and decoding.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/content_hash.h"
#include "base/file_digests.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<std::byte> bytes(input.begin(), input.end());
  // The fuzzer cannot guess the hash at the end.
  const sluice::Hash128 hash = sluice::content_hash(bytes);
  const auto raw = std::as_bytes(std::span(&hash, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  const auto entries = sluice::FileDigests::decode(bytes);
  if (entries.empty()) return 0;
  const auto again = sluice::FileDigests::decode(sluice::FileDigests::encode(entries));
  CHECK(again == entries);
  return 0;
}
