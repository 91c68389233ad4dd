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

struct Noted {
  std::int64_t day = 0;
  std::uint64_t written = 0;
};

}  // namespace

void WriteBudget::open(const std::string& path, std::int64_t now) {
  day_ = day_of(now);
  if (daily_ == 0) return;
  path_ = path;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::array<std::byte, sizeof(Noted)> bytes{};
  if (!file.valid() || !read_at(file.get(), bytes, 0)) return;
  Noted noted;
  std::memcpy(&noted, bytes.data(), sizeof(noted));
  if (noted.day == day_) written_ = noted.written;
}

bool WriteBudget::allows(std::uint64_t bytes, std::int64_t now) const {
  if (daily_ == 0 || day_of(now) != day_) return true;
  return written_ <= daily_ && bytes <= daily_ - written_;
}

void WriteBudget::note_written(std::uint64_t bytes, std::int64_t now) {
  if (day_of(now) != day_) {
    day_ = day_of(now);
    written_ = 0;
  }
  written_ += bytes;
  unnoted_ += bytes;
  if (unnoted_ < kUnnoted) return;
  flush();
  unnoted_ = 0;
}

void WriteBudget::flush() const {
  if (path_.empty()) return;
  const FileDescriptor file(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const Noted noted{day_, written_};
  std::array<std::byte, sizeof(Noted)> bytes{};
  std::memcpy(bytes.data(), &noted, sizeof(noted));
  if (file.valid()) static_cast<void>(write_at(file.get(), bytes, 0));
}

}  // namespace sluice
