#include "offload/read_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::uint64_t kReadsAtOnce = 8;
constexpr std::uint64_t kBytesAtOnce = std::uint64_t{16} << 20;

class PlainQueue final : public ReadQueue {
 public:
  explicit PlainQueue(const FileIo& io) : io_(io) {}

  int depth() const override { return 1; }
  void begin(int tag, int fd, std::span<std::byte> bytes, std::uint64_t offset) override {
    CHECK(!under_way_ && tag == 0);
    under_way_ = true;
    error_ = io_.read(fd, bytes, offset) ? 0 : errno;
  }
  End wait() override {
    CHECK(under_way_);
    under_way_ = false;
    return {0, error_};
  }

 private:
  const FileIo& io_;
  bool under_way_ = false;
  int error_ = 0;
};

}  // namespace

std::unique_ptr<ReadQueue> make_plain_queue(const FileIo& io) {
  return std::make_unique<PlainQueue>(io);
}

std::unique_ptr<ReadQueue> make_read_queue(const FileIo& io, bool uring, std::uint64_t page_bytes,
                                           std::string_view folder) {
  if (!uring) return make_plain_queue(io);
  const std::uint64_t fit = std::clamp<std::uint64_t>(kBytesAtOnce / page_bytes, 2, kReadsAtOnce);
  auto queue = make_uring_queue(io, static_cast<int>(fit));
  if (queue) return *std::move(queue);
  log_warning(
      fmt::format("{}: io_uring is not available ({}); each thread reads one block at a time",
                  folder, queue.error().message));
  return make_plain_queue(io);
}

}  // namespace sluice
