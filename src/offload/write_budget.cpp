#include "offload/write_budget.h"

#include <fcntl.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "base/file.h"
#include "offload/file_io.h"

namespace sluice {
namespace {

std::int64_t day_of(std::int64_t seconds) { return seconds / (24 * 3600); }

}  // namespace

void WriteBudget::open(const std::string& path, std::int64_t now) {
  day_ = day_of(now);
  if (daily_ == 0) return;
  path_ = path;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::array<std::byte, sizeof(Noted)> bytes{};
  if (!file.valid() || !read_at(file.get(), bytes, 0)) return;
  Noted found;
  std::memcpy(&found, bytes.data(), sizeof(found));
  if (found.day >= day_) written_ = found.written;
  if (found.day > day_) write_file(noted());  // else a file of the far future would count every day
}

void WriteBudget::go_to(std::int64_t now) {
  const std::int64_t day = day_of(now);
  if (day > day_) written_ = 0;
  day_ = day;
}

bool WriteBudget::allows(std::uint64_t bytes, std::int64_t now) {
  if (daily_ == 0) return true;
  go_to(now);
  return written_ <= daily_ && bytes <= daily_ - written_;
}

bool WriteBudget::note_written(std::uint64_t bytes, std::int64_t now) {
  go_to(now);
  written_ += bytes;
  unnoted_ += bytes;
  if (daily_ == 0 || unnoted_ < kUnnoted) return false;
  unnoted_ = 0;
  return true;
}

void WriteBudget::write_file(const Noted& noted) const {
  if (path_.empty()) return;
  const FileDescriptor file(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  std::array<std::byte, sizeof(Noted)> bytes{};
  std::memcpy(bytes.data(), &noted, sizeof(noted));
  if (file.valid()) static_cast<void>(write_at(file.get(), bytes, 0));
}

}  // namespace sluice
