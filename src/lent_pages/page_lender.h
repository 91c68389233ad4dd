// PageLender: gives borrowers memory of this process: a file of memory for each (sealed against
// another size, so that no borrower can make it shorter or longer). It takes memory back by
// punching a hole: no borrower need answer, and none needs to run. set_grants() says how much each
// borrower may use; a thread of its own follows it.
//
// - Memory is taken from the system here, before a borrower hears of it: it counts as memory of
//   this process, and a borrower that writes to it needs no more.
// - The kernel needs time for a large hole. So it is punched in slices, from the end of the memory,
//   which begin as long before the recall's deadline as they take. The borrower hears of each.
//   Memory is taken in large pages where the system allows it (base/large_pages.h): much faster.
// - A borrower that goes on writing after its hole fills it again. The thread looks once a second
//   and punches again, until the borrower closes its end or dies.
// Owner: the server. Threads: any may call. Units: bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/result.h"
#include "lending/page_offer.h"

namespace sluice {

class PageLender {
 public:
  struct Options {
    std::string socket;     // the name at which it listens
    HmacKey key{};          // page_link_key()
    std::int64_t most = 0;  // of all borrowers together
    // The memory that the system can still give. Growth leaves kSpare of it.
    std::function<std::int64_t()> available = {};
    // Bytes a second that this process is sure to take back: half of what a busy core does.
    double take_rate = 4e9;
  };
  static constexpr std::int64_t kSpare = std::int64_t{64} << 20;

  // kResourceExhausted if the socket's name is taken. The clock outlives the lender.
  static Result<std::unique_ptr<PageLender>> start(const Options& options, const Clock& clock);
  ~PageLender();  // takes all memory back

  // Replaces what was said before. A borrower that is not named has nothing.
  void set_grants(std::vector<PageGrant> grants);
  // Memory that borrowers have, or have taken again: as the system counts it, whole pages.
  std::int64_t backed() const;
  std::int32_t borrowers() const;  // that are connected, and have proved the token
  std::int64_t refused() const;    // connections without the token
  // The latest that all of a recall came back after its deadline, since the start; not before: 0.
  Duration latest_return() const;

 private:
  struct Impl;
  explicit PageLender(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
