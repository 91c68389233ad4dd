// Whole reads and writes at a place of a file. False leaves the cause in errno; a file that is too
// short for a read gives EIO.
// Functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice {

bool write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset);
bool read_at(int fd, std::span<std::byte> bytes, std::uint64_t offset);

}  // namespace sluice
