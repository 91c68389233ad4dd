// The folder in which Sluice keeps what it can make again: machine profiles, snapshots.
// Functions read the environment and the file system; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace sluice {

// $XDG_CACHE_HOME/sluice or ~/.cache/sluice; empty when neither variable is an absolute path.
std::string cache_folder();

// A folder in it that only this user can read and write, made if need be (mode 0700).
// kNotFound without a cache folder. kInvalidArgument for a folder of another user or mode: whatever
// lies in it may come from others.
Result<std::string> private_cache_folder(std::string_view name);

// Opens a file of this user that no other user can write. kInvalidArgument for other files.
Result<OpenedFile> open_own_file(const std::string& path);

}  // namespace sluice
