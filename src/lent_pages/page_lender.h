// PageLender: gives borrowers memory of this process: a file of memory for each, or chunks of a
// device (lent_part.h). set_grants() says how much each borrower may use; a thread of its own
// follows it.
//
// - A file is taken back by a hole: no borrower need answer, and none needs to run. The kernel
//   needs time for a large hole. So it is punched in slices, from the end of the memory, which
//   begin as long before the recall's deadline as they take. The borrower hears of each.
// - A borrower that goes on writing after its hole fills it again. The thread looks once a second
//   and punches again, until the borrower closes its end or dies.
// - Chunks come back by consent. The borrower hears of a recall at once. One that has not given
//   them back at the deadline is overdue(), and the log says so; its chunks count as lent until
//   they are back, and nothing else waits for them.
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
#include "device/device_chunks.h"
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
    // Lends chunks of this device; null: memory of the machine.
    std::unique_ptr<DeviceChunks> chunks = nullptr;
    // Bytes a second that this process is sure to take back: half of what a busy core does.
    double take_rate = 4e9;
  };
  static constexpr std::int64_t kSpare = std::int64_t{64} << 20;

  // kResourceExhausted if the socket's name is taken. The clock outlives the lender.
  static Result<std::unique_ptr<PageLender>> start(Options options, const Clock& clock);
  ~PageLender();  // takes all memory back

  // Replaces what was said before. A borrower that is not named has nothing.
  void set_grants(std::vector<PageGrant> grants);
  // Memory that borrowers have, or have taken again: as the system counts it, whole pages. Also
  // chunks of borrowers whose link is gone, until they are back.
  std::int64_t backed() const;
  std::int64_t overdue() const;    // the part of it that was to be back before now
  std::int32_t borrowers() const;  // that are connected, and have proved the token
  std::int64_t refused() const;    // connections, most for want of the token
  // The latest that all of a recall came back after its deadline, since the start; not before: 0.
  Duration latest_return() const;

 private:
  struct Impl;
  explicit PageLender(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
