// ImageBuilder: puts the sections of an image into one block of memory, so that large tables are
// filled in their final place. OwnedImage: the finished block.
// Owner: the reader of the files. One thread at a time; a finished image does not change.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

#include "tokenizer/image_layout.h"

namespace sluice {

// Memory of zeros at a multiple of kImageAlignment.
class ZeroedBlock {
 public:
  explicit ZeroedBlock(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct OwnedImage {
  ZeroedBlock block;
  std::size_t bytes = 0;
  std::span<const std::byte> span() const { return {block.data(), bytes}; }
};

class ImageBuilder {
 public:
  // The bytes that a section takes in the image.
  static constexpr std::size_t padded(std::size_t bytes) {
    return (bytes + kImageAlignment - 1) / kImageAlignment * kImageAlignment;
  }

  // `room`: bytes of the sections. More may be added; memory that is not used costs nothing.
  explicit ImageBuilder(std::size_t room);

  // Adds a section of `rows` rows, all zero. The span, and everything that points into the image,
  // is valid until a section is added that exceeds the room. REQUIRES: each section once.
  template <class Row>
  std::span<Row> add(ImageSection section, std::size_t rows) {
    static_assert(std::is_trivially_copyable_v<Row> && alignof(Row) <= kImageAlignment);
    return {reinterpret_cast<Row*>(add_bytes(section, rows * sizeof(Row))), rows};
  }
  // Adds a section with a copy of `rows`.
  template <class Row>
  void add_copy(ImageSection section, std::span<const Row> rows) {
    copy_bytes(section, std::as_bytes(rows));
  }
  void add_copy(ImageSection section, std::string_view bytes) {
    copy_bytes(section, std::as_bytes(std::span(bytes)));
  }

  OwnedImage finish() &&;

 private:
  std::byte* add_bytes(ImageSection section, std::size_t bytes);
  void copy_bytes(ImageSection section, std::span<const std::byte> bytes);

  ZeroedBlock block_;
  std::size_t used_;
  ImageHeader header_;
};

}  // namespace sluice
