// WorkerCall: one HTTP call while the workers have it. The loop keeps the exchange; the worker has
// the body and calls stop() during its work.
// Owner: shared by the loop and the worker's job, whichever ends last. Threads: `exchange`,
// `record` and `lease` the loop's, which takes exchange and lease out before the job lets go;
// `body` the worker's while the job runs; the rest any.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/stop_check.h"
#include "http/exchange.h"
#include "server/access_log.h"
#include "server/key_quotas.h"
#include "server/worker_pool.h"

namespace sluice {

// The time limit of one call's work on a worker.
inline constexpr Duration kMaxWorkTime = std::chrono::seconds(30);

struct WorkerCall {
  std::shared_ptr<http::Exchange> exchange;  // shared as every exchange is
  AccessRecord record;
  KeyQuotas::Lease lease;
  std::string body;
  WorkerPool* pool = nullptr;  // that has the job of `ticket`
  std::optional<WorkerPool::Ticket> ticket;
  std::atomic<bool> abandoned = false;  // the client has left, or the server stops

  // The worker's check; its time begins now. REQUIRES: clock and call outlive it.
  StopCheck stop_check(const Clock& clock) const {
    return [this, &clock, end = clock.now() + kMaxWorkTime]() -> Status {
      if (abandoned.load(std::memory_order_relaxed)) {
        return Error{ErrorCode::kCancelled, "the client has left"};
      }
      if (clock.now() < end) return {};
      return Error{ErrorCode::kDeadlineExceeded,
                   "reading the request took longer than 30 s; shorten it"};
    };
  }
};

}  // namespace sluice
