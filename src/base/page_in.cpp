#include "base/page_in.h"

#include <sys/mman.h>

#include <cstdint>

namespace sluice {
namespace {

#ifdef MADV_POPULATE_READ
constexpr int kPopulateRead = MADV_POPULATE_READ;
#else
constexpr int kPopulateRead = 22;  // Linux 5.14; an older kernel refuses it, which does no harm
#endif
constexpr std::uintptr_t kAdvisedPage = 4096;

void advise(std::span<const std::byte> bytes, int advice) {
  if (bytes.empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / kAdvisedPage * kPageBytes;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the begin of a page of the range
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, advice));
}

}  // namespace

void start_paging_in(std::span<const std::byte> bytes) { advise(bytes, MADV_WILLNEED); }
void page_in(std::span<const std::byte> bytes) { advise(bytes, kPopulateRead); }

}  // namespace sluice
