// The memory through which the server and a function process settle the function's turns: one page
// that only the server writes, one that only the function writes, and a bell (an eventfd) that the
// function rings. No other function has them. A third page, which only the server writes and all
// functions read, counts the server's urgent work.
//
//   server:   grants turn n    grant.turn = (n, yes), wakes the function
//   function: returns turn n   request.word = (n, wants another), rings
//   server:   takes it back    grant.turn = (n, no)
//
// A turn is returned between two steps of the engine: when there is nothing more to compute, or
// from grant.return_after on. Turn 0 counts as returned at the start, so a function asks for its
// first turn with (0, wants).
// Threads: any; all fields are atomic. Errors: kResourceExhausted, kUnsupported (an old kernel).
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

#include "base/file.h"
#include "base/result.h"
#include "base/shared_memory.h"
#include "base/urgent_work.h"

namespace sluice {

// The number of a turn, modulo 2^31, and a flag.
constexpr std::uint32_t turn_word(std::uint32_t number, bool flag) {
  return (number << 1) | (flag ? 1U : 0U);
}

struct TurnGrant {
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  std::atomic<std::uint32_t> turn{0};              // turn_word(number, the function has it)
  std::atomic<std::int64_t> return_after{kNever};  // nanoseconds of the steady clock
};

struct TurnRequest {
  std::atomic<std::uint32_t> word{0};  // turn_word(number of the last returned turn, wants another)
};

// A T in shared memory.
template <class T>
using MappedPage = std::unique_ptr<T, Unmap>;

// The server's end.
class TurnPages {
 public:
  static Result<TurnPages> create();

  TurnGrant& grant() { return *grant_; }
  // Written by a process that is not trusted: any value may be in it.
  const TurnRequest& request() const { return *request_; }

  // For the function: read-only, writable, writable.
  int grant_fd() const { return grant_fd_.get(); }
  int request_fd() const { return request_fd_.get(); }
  int bell_fd() const { return bell_.get(); }

 private:
  TurnPages() = default;

  FileDescriptor grant_fd_;
  FileDescriptor request_fd_;
  FileDescriptor bell_;
  MappedPage<TurnGrant> grant_;
  MappedPage<const TurnRequest> request_;
};

// The count of the server's urgent work, in memory that functions read.
class UrgentBoard {
 public:
  static Result<UrgentBoard> create();
  UrgentWork::Count& count() { return *count_; }
  int reader_fd() const { return reader_.get(); }

 private:
  UrgentBoard() = default;
  FileDescriptor reader_;
  MappedPage<UrgentWork::Count> count_;
};

// The function's end. kInvalidArgument if a descriptor is not such a page.
Result<MappedPage<const TurnGrant>> map_grant(int fd);
Result<MappedPage<TurnRequest>> map_request(int fd);
Result<MappedPage<const UrgentWork::Count>> map_urgent_count(int fd);

}  // namespace sluice
