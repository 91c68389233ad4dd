#include "tokenizer/image_layout.h"

#include <cstring>
#include <string>

#include "base/check.h"

namespace sluice {

Error ImageView::damaged(std::string_view reason) {
  return invalid_argument("tokenizer image: damaged (" + std::string(reason) + "); make it again");
}

Result<ImageView> ImageView::open(std::span<const std::byte> bytes) {
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % kImageAlignment == 0);
  ImageHeader header;
  if (bytes.size() < sizeof header) return damaged("shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kImageMagic) return invalid_argument("tokenizer image: this is none");
  if (header.byte_order != kImageByteOrder) {
    return invalid_argument(
        "tokenizer image: made on a machine with another byte order; make it again here");
  }
  if (header.version != kImageVersion) {
    return unsupported("tokenizer image: version " + std::to_string(header.version) +
                       "; this program reads version " + std::to_string(kImageVersion) +
                       ". Make the image again");
  }
  if (header.bytes != bytes.size()) {
    return damaged("it has " + std::to_string(bytes.size()) + " bytes instead of " +
                   std::to_string(header.bytes));
  }
  for (const ImageRange& range : header.sections) {
    if (range.offset > bytes.size() || range.bytes > bytes.size() - range.offset ||
        range.offset % kImageAlignment != 0) {
      return damaged("a section is outside of the image");
    }
  }
  return ImageView(bytes, header);
}

std::span<const std::byte> ImageView::section(ImageSection section) const {
  const ImageRange& range = header_.sections[static_cast<std::size_t>(section)];
  return bytes_.subspan(static_cast<std::size_t>(range.offset),
                        static_cast<std::size_t>(range.bytes));
}

std::string_view ImageView::text(ImageSection section) const {
  const std::span<const std::byte> bytes = this->section(section);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace sluice
