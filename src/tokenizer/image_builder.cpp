#include "tokenizer/image_builder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"

namespace sluice {

// calloc() gives large blocks as fresh pages of the system, which are zero without a write.
ZeroedBlock::ZeroedBlock(std::size_t bytes)
    : memory_(std::calloc(bytes + kImageAlignment, 1)), size_(bytes) {
  if (memory_ == nullptr) throw std::bad_alloc();
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
  const std::size_t shift = (kImageAlignment - address % kImageAlignment) % kImageAlignment;
  data_ = static_cast<std::byte*>(memory_.get()) + shift;
}

ImageBuilder::ImageBuilder(std::size_t room)
    : block_(padded(sizeof(ImageHeader)) + padded(room)), used_(padded(sizeof(ImageHeader))) {
  header_.magic = kImageMagic;
  header_.byte_order = kImageByteOrder;
  header_.version = kImageVersion;
}

std::byte* ImageBuilder::add_bytes(ImageSection section, std::size_t bytes) {
  ImageRange& range = header_.sections[static_cast<std::size_t>(section)];
  CHECK(range.offset == 0);
  range = {used_, bytes};
  used_ += padded(bytes);
  if (used_ > block_.size()) {
    ZeroedBlock larger(std::max(used_, block_.size() + block_.size() / 2));
    std::memcpy(larger.data(), block_.data(), range.offset);
    block_ = std::move(larger);
  }
  return block_.data() + range.offset;
}

void ImageBuilder::copy_bytes(ImageSection section, std::span<const std::byte> bytes) {
  std::byte* to = add_bytes(section, bytes.size());
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
}

OwnedImage ImageBuilder::finish() && {
  header_.bytes = used_;
  std::memcpy(block_.data(), &header_, sizeof header_);
  return {std::move(block_), used_};
}

}  // namespace sluice
