// GGUF files: the input is a file. An accepted file has every property that the rest of the program
// relies on, every accessor of its metadata gives a value or an error, and so does the translation
// of its tokenizer.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "checkpoint/gguf.h"
#include "model/gguf_tokenizer.h"

namespace {

void check_metadata(const sluice::GgufMetadata& metadata) {
  const sluice::GgufMetadata::Entry* previous = nullptr;
  for (const auto& entry : metadata.entries()) {
    CHECK(previous == nullptr || previous->key < entry.key);
    previous = &entry;
    // A value has one kind at most: an integer, a real number, a flag, a text, or an array of one.
    int kinds = 0;
    if (metadata.whole_number(entry.key)) ++kinds;
    if (metadata.real_number(entry.key)) ++kinds;
    if (metadata.flag(entry.key)) ++kinds;
    if (metadata.text(entry.key)) ++kinds;
    const auto count = [&](const auto& values) {
      if (!values) return;
      CHECK((*values)->size() == entry.value.count);
      ++kinds;
    };
    count(metadata.texts(entry.key));
    count(metadata.integers(entry.key));
    count(metadata.real_numbers(entry.key));
    CHECK(kinds <= 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto header = sluice::parse_gguf(std::as_bytes(std::span(data, size)), 0);
  if (!header) {
    CHECK(!header.error().message.empty());
    return 0;
  }
  check_metadata(header->metadata);
  const auto tokenizer = sluice::gguf_tokenizer_json(header->metadata);
  CHECK(tokenizer ? !tokenizer->empty() : !tokenizer.error().message.empty());
  const auto config = sluice::gguf_tokenizer_config_json(header->metadata);
  CHECK(config ? !config->empty() : !config.error().message.empty());
  const sluice::GgufTensor* previous = nullptr;
  std::uint64_t total = 0;
  for (const sluice::GgufTensor& tensor : header->tensors) {
    CHECK(previous == nullptr || previous->name < tensor.name);
    previous = &tensor;
    CHECK(tensor.offset % 8 == 0 && tensor.offset <= size && tensor.bytes <= size - tensor.offset);
    CHECK(!tensor.shape.empty() && !sluice::gguf_tensor_type_name(tensor.type).empty());
    for (const std::int64_t dim : tensor.shape) CHECK(dim > 0);
    // Ranges do not overlap, so together they fit into the file.
    total += tensor.bytes;
    CHECK(total <= size);
  }
  return 0;
}
