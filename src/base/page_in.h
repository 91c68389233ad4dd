// Brings pages of mappings into memory before they are used, and lets them go afterwards. Functions
// without state; any thread. No result depends on them: a page that they leave out is brought in
// when it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

// Starts to read the pages from their file, and returns at once.
void start_paging_in(std::span<const std::byte> bytes);
// Reads one byte of each 64 KiB. The system reads missing pages, and maps those around the byte
// that it has. REQUIRES: a file that may be truncated is guarded (MappingGuard).
void touch_pages(std::span<const std::byte> bytes);
enum class PageUse : std::uint8_t { kRead, kWrite };
// Brings in all pages of a range that is mapped for this use. The contents stay. Returns 0, or the
// cause as errno. REQUIRES: the range begins at a page.
int populate_pages(std::span<std::byte> bytes, PageUse use);
// Takes the whole pages of a range of a mapped file out of this process's memory. The system may
// keep them, and a later read brings them back.
void release_pages(std::span<const std::byte> bytes);

}  // namespace sluice
