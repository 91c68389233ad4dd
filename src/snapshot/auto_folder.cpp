#include "snapshot/auto_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/cache_folder.h"
#include "base/content_hash.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

struct KeptFile {
  fs::path path;
  fs::file_time_type written;
  std::uint64_t bytes = 0;
};

std::vector<KeptFile> files_of(const fs::path& folder) {
  std::vector<KeptFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    // A file that another process removes meanwhile has no size.
    std::error_code gone;
    const KeptFile file{entry->path(), entry->last_write_time(gone), entry->file_size(gone)};
    if (!gone && file.path.extension() == ".snapshot") files.push_back(file);
  }
  return files;
}

}  // namespace

Result<std::string> auto_snapshot_path(std::string_view model) {
  ASSIGN_OR_RETURN(const std::string folder, private_cache_folder("snapshots"));
  return folder + "/" + to_hex(content_hash(model)) + ".snapshot";
}

void remove_auto_snapshot(const std::string& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

void limit_auto_folder(const std::string& newest) {
  std::vector<KeptFile> files = files_of(fs::path(newest).parent_path());
  std::ranges::sort(files, {}, &KeptFile::written);
  std::uint64_t bytes = 0;
  for (const KeptFile& file : files) bytes += file.bytes;
  for (const KeptFile& file : files) {
    if (bytes <= kMaxAutoBytes) return;
    if (file.path == fs::path(newest)) continue;
    remove_auto_snapshot(file.path.string());
    bytes -= file.bytes;
  }
}

}  // namespace sluice
