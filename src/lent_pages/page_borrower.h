// PageBorrower: fetches the memory that lenders of pages give this process, and hands it to a
// LentMemory. The coordinator says which loans there are; each lender says how much of its loan is
// backed; the smaller amount may be used. A thread of its own speaks to the lenders. A lender that
// closes its end, dies, or lacks the token gives nothing; the thread tries again while the loan
// lasts. Chunks of a device are dropped as soon as they may not be used, and the lender hears of
// each. Owner: the server. Threads: any may call. Units: bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/result.h"
#include "device/device_chunks.h"
#include "lending/lending_message.h"
#include "offload/lent_memory.h"

namespace sluice {

class PageBorrower {
 public:
  static constexpr Duration kRetry = std::chrono::milliseconds(250);

  // `party`: as the coordinator knows it. `key`: page_link_key(). The memory is shared with the
  // tier; the clock outlives the borrower. `open_chunks`: for lenders of chunks; empty: they are
  // refused.
  static Result<std::unique_ptr<PageBorrower>> start(std::string party, const HmacKey& key,
                                                     std::shared_ptr<LentMemory> memory,  // shared
                                                     const Clock& clock,
                                                     OpenDeviceChunks open_chunks = {});
  ~PageBorrower();  // gives all memory back

  // Replaces the loans. Memory beyond what they `keep` is given back soon, see in_use().
  void set_loans(std::vector<LoanView> loans);
  // The most that this process may still use of any loans that it was told of.
  std::int64_t in_use() const;

 private:
  struct Impl;
  explicit PageBorrower(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
