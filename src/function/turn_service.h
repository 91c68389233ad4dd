// TurnService: the thread that lends the device to function processes. It owns the TurnKeeper, the
// bells that functions ring, and the page that counts the server's urgent work.
//
// The thread sleeps until a bell rings or a limit is due; while one function computes alone, it
// wakes every TurnKeeper::Options::check. It never reads a bell: a function could empty it first.
// Owner: the command; it outlives all seats. Threads: any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"
#include "function/turn_keeper.h"
#include "function/turn_page.h"

namespace sluice {

class TurnService {
 public:
  // Starts the thread.
  static Result<std::unique_ptr<TurnService>> start(const TurnKeeper::Options& options,
                                                    const Clock& clock);
  ~TurnService();  // REQUIRES: no seat is left
  TurnService(const TurnService&) = delete;
  TurnService& operator=(const TurnService&) = delete;

  // The count to give to the UrgentWork of the server.
  UrgentWork::Count& urgent_count() { return board_.count(); }
  int urgent_fd() const { return board_.reader_fd(); }
  TurnKeeper::Totals totals() const { return keeper_.totals(); }
  // Whether a function has a turn or waits for one.
  bool is_busy() const { return keeper_.is_busy(); }

  // A function's right to turns, from before its process starts until after its last use.
  class Seat {
   public:
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    const TurnPages& pages() const { return pages_; }
    // The process runs; it may be stopped and killed while this seat exists, so the caller must not
    // wait for it (waitpid) before the seat's end.
    void attach(pid_t process);
    // Its engine is ready.
    void watch_cpu();
    void set_tenant(const std::string& tenant);
    void set_due(std::optional<TimePoint> due);  // TurnKeeper::set_due()
    Duration turn_time() const;                  // so far
    Duration waited() const;                     // for turns, so far
    // Why the process was killed, if it was killed for its turns.
    std::optional<Error> failure() const;

   private:
    friend class TurnService;
    Seat(TurnService& service, TurnPages pages) : service_(service), pages_(std::move(pages)) {}

    TurnService& service_;
    TurnPages pages_;
    TurnKeeper::SeatId id_ = 0;
  };
  // `slow_step`: as TurnKeeper::add() says.
  Result<std::unique_ptr<Seat>> add(const std::string& tenant, Duration slow_step = Duration(0));

 private:
  TurnService(const TurnKeeper::Options& options, const Clock& clock, UrgentBoard board)
      : clock_(clock), keeper_(options, clock), board_(std::move(board)) {}

  void run();
  void ring() const;

  const Clock& clock_;
  TurnKeeper keeper_;
  UrgentBoard board_;
  FileDescriptor bells_;  // an epoll of all bells, edge-triggered
  FileDescriptor own_bell_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace sluice
