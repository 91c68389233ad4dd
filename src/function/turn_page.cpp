#include "function/turn_page.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/shared_memory.h"

namespace sluice {
namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// Memory that holds one T, which is made in it.
template <class T>
struct OwnPage {
  FileDescriptor fd;
  MappedPage<T> value;
};

template <class T>
Result<OwnPage<T>> make_page(const char* name) {
  static_assert(std::is_trivially_destructible_v<T>);
  OwnPage<T> page;
  ASSIGN_OR_RETURN(page.fd, create_shared_memory(name, sizeof(T)));
  ASSIGN_OR_RETURN(MemoryMapping memory,
                   map_memory(page.fd.get(), sizeof(T), MemoryAccess::kReadWrite, name));
  page.value = MappedPage<T>(new (memory.release()) T{}, Unmap{sizeof(T)});
  return page;
}

// Leaves the mapping that is there as the only writer, and the page with a read-only descriptor.
template <class T>
Status make_read_only(OwnPage<T>& page, const char* name) {
  RETURN_IF_ERROR(seal_against_new_writers(page.fd.get(), name));
  ASSIGN_OR_RETURN(page.fd, read_only_descriptor(page.fd.get()));
  return {};
}

Status check_size(int fd, std::size_t bytes, const char* what) {
  ASSIGN_OR_RETURN(const std::size_t size, shared_memory_size(fd, what));
  if (size == bytes) return {};
  return invalid_argument(fmt::format("{}: {} bytes instead of {}", what, size, bytes));
}

// The T that the server has made in the memory of `fd`.
template <class T>
Result<MappedPage<T>> map_page(int fd, const char* what) {
  RETURN_IF_ERROR(check_size(fd, sizeof(T), what));
  const auto access = std::is_const_v<T> ? MemoryAccess::kRead : MemoryAccess::kReadWrite;
  ASSIGN_OR_RETURN(MemoryMapping memory, map_memory(fd, sizeof(T), access, what));
  return MappedPage<T>(std::launder(reinterpret_cast<T*>(memory.release())), Unmap{sizeof(T)});
}

}  // namespace

Result<TurnPages> TurnPages::create() {
  TurnPages pages;
  ASSIGN_OR_RETURN(OwnPage<TurnGrant> grant, make_page<TurnGrant>("sluice-turn-grant"));
  RETURN_IF_ERROR(make_read_only(grant, "turn grant"));
  ASSIGN_OR_RETURN(OwnPage<TurnRequest> request, make_page<TurnRequest>("sluice-turn-request"));
  pages.bell_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!pages.bell_.valid()) {
    return resource_exhausted(std::string("cannot create an eventfd: ") + std::strerror(errno));
  }
  pages.grant_fd_ = std::move(grant.fd);
  pages.grant_ = std::move(grant.value);
  pages.request_fd_ = std::move(request.fd);
  pages.request_ = std::move(request.value);
  return pages;
}

Result<UrgentBoard> UrgentBoard::create() {
  UrgentBoard board;
  ASSIGN_OR_RETURN(OwnPage<UrgentWork::Count> page,
                   make_page<UrgentWork::Count>("sluice-urgent-work"));
  RETURN_IF_ERROR(make_read_only(page, "count of urgent work"));
  board.reader_ = std::move(page.fd);
  board.count_ = std::move(page.value);
  return board;
}

Result<MappedPage<const TurnGrant>> map_grant(int fd) {
  return map_page<const TurnGrant>(fd, "turn grant");
}

Result<MappedPage<TurnRequest>> map_request(int fd) {
  return map_page<TurnRequest>(fd, "turn request");
}

Result<MappedPage<const UrgentWork::Count>> map_urgent_count(int fd) {
  return map_page<const UrgentWork::Count>(fd, "count of urgent work");
}

}  // namespace sluice
