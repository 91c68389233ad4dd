#include "offload/lent_bytes.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "offload/file_io.h"

namespace sluice {
namespace {

// Never through a mapping: a process that reads what a lender cuts off would end.
class LentFile final : public LentBytes {
 public:
  explicit LentFile(FileDescriptor file) : file_(std::move(file)) {}
  Status write(std::uint64_t offset, std::span<const std::byte> source) override {
    if (write_at(file_.get(), source, offset)) return {};
    return resource_exhausted(std::strerror(errno));
  }
  Status read(std::uint64_t offset, std::span<std::byte> target) override {
    if (read_at(file_.get(), target, offset)) return {};
    return unavailable(std::strerror(errno));
  }

 private:
  const FileDescriptor file_;
};

}  // namespace

std::unique_ptr<LentBytes> lent_file(FileDescriptor file) {
  return std::make_unique<LentFile>(std::move(file));
}

}  // namespace sluice
