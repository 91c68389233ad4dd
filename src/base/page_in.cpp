#include "base/page_in.h"

#include <sys/mman.h>

#include <cstdint>

namespace sluice {
namespace {

constexpr std::uintptr_t kAdvisedPage = 4096;
constexpr std::size_t kFaultAround = std::size_t{64} << 10;  // Linux's default

}  // namespace

void start_paging_in(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / kAdvisedPage * kAdvisedPage;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the begin of a page of the range
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED));
}

void release_pages(std::span<const std::byte> bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto begin = (first + kAdvisedPage - 1) / kAdvisedPage * kAdvisedPage;
  const auto end = (first + bytes.size()) / kAdvisedPage * kAdvisedPage;
  if (begin >= end) return;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the begin of a page of the range
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED));
}

void touch_pages(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += kFaultAround) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[i]));
  }
}

}  // namespace sluice
