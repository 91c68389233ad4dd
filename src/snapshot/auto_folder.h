// The files of --snapshot auto: one for each model, in a folder of the cache that only this user
// can read and write. All of them together stay below kMaxAutoBytes.
// Functions on the file system; any thread and process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

inline constexpr std::uint64_t kMaxAutoBytes = std::uint64_t{64} << 20;

// The file of a model, whether it exists or not. Errors as private_cache_folder().
Result<std::string> auto_snapshot_path(std::string_view model);

void remove_auto_snapshot(const std::string& path);

// Removes the files that were written longest ago, but not `newest`, until the rest fits.
void limit_auto_folder(const std::string& newest);

}  // namespace sluice
