#include "base/page_in.h"

#include <sys/mman.h>

#include <cerrno>
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

int populate_pages(std::span<std::byte> bytes, PageUse use) {
  const int advice = use == PageUse::kWrite ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(bytes.data(), bytes.size(), advice) == 0) return 0;
  if (errno != EINVAL) return errno;
  // Kernels before 5.14 bring a page in when it is used.
  for (std::size_t i = 0; i < bytes.size(); i += kAdvisedPage) {
    volatile std::byte& first = bytes[i];
    const std::byte value = first;
    if (use == PageUse::kWrite) first = value;
  }
  return 0;
}

void touch_pages(std::span<const std::byte> bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += kFaultAround) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[i]));
  }
}

}  // namespace sluice
