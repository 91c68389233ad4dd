// Damaged images give an error, or a tokenizer that stays within the image's bytes and ends all
// work. The input is a list of changes to a good image; for one kind it is the image itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/image_layout.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace {

using namespace sluice;

constexpr std::string_view kTexts[] = {
    "hello  world\n 123 don't <|end|> <s>a</s>",
    "\u00e9e\u0301 \u4e2d\u6587 \U0001F600\u200d \u2581the \u0130\uFB01\u1100\u1161\u11A7"};

Tokenizer load(const nlohmann::json& definition) {
  auto loaded = Tokenizer::from_json(dump_json(definition));
  if (!loaded) std::abort();
  return *std::move(loaded);
}

std::vector<Tokenizer> make_originals() {
  std::vector<Tokenizer> originals;
  originals.push_back(load(byte_level_json()));
  originals.push_back(load(sentencepiece_json()));
  nlohmann::json definition = byte_level_json();
  definition["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "h"}},
        {{"type", "Replace"}, {"pattern", {{"Regex", "l+"}}}, {"content", "ll"}},
        {{"type", "NFKD"}}}}};
  definition["pre_tokenizer"] = {{"type", "Split"},
                                 {"pattern", {{"Regex", "[a-z]+"}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}};
  definition["added_tokens"][0]["normalized"] = true;
  originals.push_back(load(definition));
  return originals;
}

void use(const Tokenizer& tokenizer) {
  for (const std::string_view text : kTexts) {
    const auto ids = tokenizer.encode(text, {.max_tokens = 4096});
    if (!ids) continue;
    StreamingDetokenizer stream(tokenizer, SkipSpecialTokens::kNo);
    std::string streamed;
    for (const TokenId id : *ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
      stream.push(id, streamed);
      (void)tokenizer.token_bytes(id);
      (void)tokenizer.id_of(tokenizer.token_text(id));
    }
    stream.finish(streamed);
    if (streamed != tokenizer.decode(*ids, SkipSpecialTokens::kNo)) std::abort();
  }
}

// Each change is four bytes: an offset of 24 bits and the new byte. An offset behind the image cuts
// it off instead, with a header that agrees.
void change(std::span<const std::uint8_t> changes, std::vector<std::byte>& image) {
  for (; changes.size() >= 4 && !image.empty(); changes = changes.subspan(4)) {
    const std::size_t offset =
        std::size_t{changes[0]} | std::size_t{changes[1]} << 8 | std::size_t{changes[2]} << 16;
    if (offset < image.size()) {
      image[offset] = static_cast<std::byte>(changes[3]);
      continue;
    }
    image.resize(offset % image.size());
    const std::uint64_t bytes = image.size();
    if (image.size() < sizeof(ImageHeader)) continue;
    std::memcpy(image.data() + offsetof(ImageHeader, bytes), &bytes, sizeof bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<Tokenizer> originals = make_originals();
  if (size == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  const std::size_t kind = data[0] % (originals.size() + 1);
  std::vector<std::byte> image;
  if (kind == originals.size()) {
    const auto bytes = std::as_bytes(rest);
    image.assign(bytes.begin(), bytes.end());
  } else {
    const auto bytes = originals[kind].image();
    image.assign(bytes.begin(), bytes.end());
    change(rest, image);
  }
  // A block of exactly these bytes, so that the sanitizer tells of any read behind it.
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  void* memory = nullptr;
  if (posix_memalign(&memory, kImageAlignment, image.size()) != 0) return 0;
  const std::unique_ptr<void, Free> block(memory);
  if (!image.empty()) std::memcpy(block.get(), image.data(), image.size());
  const auto opened =
      Tokenizer::from_image({static_cast<std::byte*>(block.get()), image.size()}, nullptr);
  if (opened) {
    use(*opened);
  } else if (!opened.error().message.starts_with("tokenizer image: ")) {
    std::abort();
  }
  return 0;
}
