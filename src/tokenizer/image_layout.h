// The layout of a tokenizer's image: all that a running tokenizer reads, in one block of bytes
// without pointers. An image can be mapped from a file, so that several processes share its pages.
//
// A header comes first, then sections at multiples of 64 bytes. Numbers are in the byte order of
// the machine that made the image. Bytes between sections are zero. The same files give the same
// bytes. A change of any section, or of the meaning of a number in it, needs a new kImageVersion.
// Threads: an image does not change; any thread may read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace sluice {

inline constexpr std::uint32_t kImageVersion = 1;
inline constexpr std::size_t kImageAlignment = 64;

enum class ImageSection : std::uint32_t {
  kTexts,           // the texts of the vocabulary's tokens, one after another
  kSpans,           // TokenSpan of each id
  kSlots,           // TokenSlot: a hash table from text to id
  kMerges,          // MergeSlot: a hash table from a pair of ids to its merge
  kModel,           // one BpeRecord
  kAddedTokens,     // AddedTokenRecord, ids ascending
  kAddedTexts,      // the texts of the added tokens
  kRawTrie,         // finds added tokens in the original text
  kNormalizedTrie,  // finds added tokens in normalized text
  kSteps,           // the steps around the model (steps_image.h)
};
inline constexpr std::size_t kImageSections = 10;

struct ImageRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct ImageHeader {
  std::array<char, 8> magic{};
  std::uint32_t byte_order = 0;
  std::uint32_t version = 0;
  std::uint64_t bytes = 0;  // of the whole image
  std::array<ImageRange, kImageSections> sections{};
};
inline constexpr std::array<char, 8> kImageMagic = {'S', 'L', 'U', 'I', 'C', 'E', 'T', 'K'};
inline constexpr std::uint32_t kImageByteOrder = 0x01020304;

// An image whose header and section bounds are checked; the sections themselves are not.
class ImageView {
 public:
  // Errors: kInvalidArgument (not an image, truncated, another byte order), kUnsupported (another
  // version). REQUIRES: `bytes` starts at a multiple of kImageAlignment and outlives the view.
  static Result<ImageView> open(std::span<const std::byte> bytes);

  std::span<const std::byte> section(ImageSection section) const;
  std::string_view text(ImageSection section) const;

  // The section as a table. Error: its length is not a multiple of a row's.
  template <class Row>
  Result<std::span<const Row>> table(ImageSection section) const {
    static_assert(std::is_trivially_copyable_v<Row> && alignof(Row) <= kImageAlignment);
    const std::span<const std::byte> bytes = this->section(section);
    if (bytes.size() % sizeof(Row) != 0) return damaged("a table ends within a row");
    return std::span(reinterpret_cast<const Row*>(bytes.data()), bytes.size() / sizeof(Row));
  }

  static Error damaged(std::string_view reason);

 private:
  ImageView(std::span<const std::byte> bytes, const ImageHeader& header)
      : bytes_(bytes), header_(header) {}

  std::span<const std::byte> bytes_;
  ImageHeader header_;
};

}  // namespace sluice
