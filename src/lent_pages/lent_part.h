// LentPart: the memory that one borrower has of a lender of pages, as the lender sees it. Two
// kinds:
//
//   FilePart   a file of memory; it is taken back by a hole, whatever the borrower does
//   ChunkPart  chunks of a device's memory; they come back when the borrower has dropped them or
//   its
//              process has ended, and no sooner: nothing can take them from a process
//
// LentStore makes the parts, all of one kind. Owner: PageLender. Threads: its thread. Units: bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/file.h"
#include "base/result.h"
#include "lent_pages/page_link.h"

namespace sluice {

class LentPart {
 public:
  virtual ~LentPart() = default;

  virtual bool by_consent() const = 0;      // it comes back only if the borrower gives it
  virtual std::int64_t size() const = 0;    // the borrower's most
  virtual std::int64_t unit() const = 0;    // amounts are multiples of it
  virtual std::int64_t step() const = 0;    // one call of take() or grow() moves so much at most
  virtual std::int64_t usable() const = 0;  // that the borrower may use
  virtual std::int64_t given() const = 0;   // that it has: usable, or not come back
  virtual std::int64_t counted()
      const = 0;  // as the system counts it: more, if it took memory again

  // Lowers usable() towards `bytes`. An error: it is as it was.
  virtual Status take(std::int64_t bytes) = 0;
  // Raises usable() towards `bytes`, by memory that is taken from the system.
  virtual Status grow(std::int64_t bytes) = 0;

  // With the welcome.
  virtual int descriptor() const = 0;  // -1: none
  virtual std::int64_t chunk_bytes() const = 0;
  // Whether there is news for the borrower; tell() sends as much as the link accepts.
  virtual bool has_news() const = 0;
  virtual Status tell(PageLink& link) = 0;
  // A message of the borrower. False: it is none that a borrower sends.
  virtual bool hear(const PageMessage& message) = 0;

  // The link is gone. True: and all memory is back.
  virtual bool end() = 0;
  // That becomes readable when end() may have another answer; -1: none.
  virtual int ending() const = 0;
};

class LentStore {
 public:
  virtual ~LentStore() = default;
  // `process`: the borrower's, a descriptor that becomes readable when the process has ended; not
  // valid if this process cannot see it.
  virtual Result<std::unique_ptr<LentPart>> open(FileDescriptor process) = 0;
};

}  // namespace sluice
