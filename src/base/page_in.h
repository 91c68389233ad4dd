// Brings pages of mapped files into memory before they are used.
// Functions without state; any thread. Errors do not exist: a page that is missing or cannot be
// read yet is read when it is used.
#pragma once

#include <cstddef>
#include <span>

namespace sluice {

// Starts to read the pages from their file, and returns at once.
void start_paging_in(std::span<const std::byte> bytes);
// Returns once the pages are in memory and mapped in this process.
void page_in(std::span<const std::byte> bytes);

}  // namespace sluice
