#include "engine/weight_watch.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::string_view kWhatToDo =
    "restart the server, and replace the files of a model that is served with mv, never in place";

Error failed(std::string message) {
  log_error(message);
  return unavailable(std::move(message));
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

Status WeightWatch::add(std::string path, int fd, const std::byte* data, std::size_t bytes) {
  File file;
  file.fd = FileDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!file.fd.valid() || fstat(file.fd.get(), &file.before) != 0) {
    return unavailable(fmt::format("{}: cannot be watched: {}", path, std::strerror(errno)));
  }
  file.path = std::move(path);
  file.data = data;
  file.guard = MappingGuard(data, bytes);
  files_.push_back(std::move(file));
  return {};
}

void WeightWatch::remove(const std::byte* data) {
  std::erase_if(files_, [&](const File& file) { return file.data == data; });
}

Status WeightWatch::check_pages() const {
  for (const File& file : files_) {
    if (!file.guard.faulted()) continue;
    return failed(
        fmt::format("{}: was truncated while the model was in use, and weights are "
                    "missing; {}",
                    file.path, kWhatToDo));
  }
  return {};
}

std::optional<TimePoint> WeightWatch::next_check() const {
  if (files_.empty()) return std::nullopt;
  return last_check_ + kInterval;
}

Status WeightWatch::check_files(TimePoint now) {
  if (files_.empty() || now < last_check_ + kInterval) return {};
  return check_files_now(now);
}

Status WeightWatch::check_files_now(TimePoint now) {
  last_check_ = now;
  for (const File& file : files_) {
    struct stat info{};
    if (fstat(file.fd.get(), &info) != 0) continue;  // the status is unknown: assume no change
    if (info.st_size == file.before.st_size && same_time(info.st_mtim, file.before.st_mtim)) {
      continue;
    }
    return failed(
        fmt::format("{}: was changed in place while the model was in use ({} bytes, {} "
                    "before); its answers would be wrong; {}",
                    file.path, info.st_size, file.before.st_size, kWhatToDo));
  }
  return {};
}

}  // namespace sluice
