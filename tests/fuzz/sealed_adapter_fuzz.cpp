// Sealed adapters: the input itself, or, if its size is odd, the input behind a right beginning.
// Whatever decodes has all entries inside of its bytes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "adapter/sealed_adapter.h"
#include "base/byte_stream.h"
#include "base/check.h"
#include "tests/support/fuzz_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sluice;
  static const ModelConfig config = fuzz_model_config();
  ByteWriter memory;
  if (size % 2 == 1) {
    memory.text("sluice adapter");
    memory.u32(kSealedAdapterVersion);
    memory.u32(static_cast<std::uint32_t>(DType::kF32));
    memory.text(std::string(64, 'a'));
    memory.u32(static_cast<std::uint32_t>(num_lora_entries(config)));
  }
  memory.bytes(std::as_bytes(std::span(data, size)));
  // Short inputs reach the bytes of an image too.
  if (size % 4 == 3) memory.align(kSealedAlignment);
  const auto image = decode_sealed_adapter(memory.written(), config, DType::kF32);
  if (!image) {
    CHECK(!image.error().message.empty());
    return 0;
  }
  for (const LoraEntry& entry : image->entries) {
    CHECK(entry.rank >= 0 && entry.rank <= image->max_rank);
    CHECK(entry.a >= 0 && entry.b >= entry.a);
    CHECK(static_cast<std::size_t>(entry.b) <= image->bytes.size());
  }
  return 0;
}
