// The two sides of leases of pages in `serve`: PageLendSession (--lend-pages) lends memory that the
// server does not need now and takes it back when it does; PageBorrowSession (--borrow-pages) keeps
// a tier's memory filled with what others lend. Owner: LendSession. Threads: the event loop's;
// leave() after the loop has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/lend_settings.h"
#include "apps/party_link.h"
#include "base/clock.h"
#include "base/result.h"
#include "http/event_loop.h"
#include "lending/lending_agent.h"
#include "lending/lending_policy.h"
#include "lending/page_offer.h"
#include "lent_pages/page_borrower.h"
#include "lent_pages/page_lender.h"

namespace sluice {

class PageLendSession {
 public:
  // REQUIRES: loop and clock outlive the session.
  static Result<std::unique_ptr<PageLendSession>> open(const LendSettings& settings,
                                                       http::EventLoop& loop, const Clock& clock);

  // `load`: of the engine, whose limit is `base` and own_bytes(). `pressed`: the system is short of
  // memory.
  void look(const LendingLoad& load, std::int64_t base, bool pressed);
  void send();
  void leave();

  // The part of --lend-pages that the server may use itself.
  std::int64_t own_bytes() const { return own_ - reserved_; }
  std::int64_t lent_bytes() const { return lender_->backed(); }
  std::int64_t overdue_bytes() const { return lender_->overdue(); }
  std::uint64_t revoked() const { return offer_.revoked(); }

 private:
  PageLendSession(const LendSettings& settings, std::string socket, const Clock& clock);

  const std::string url_;
  const std::int64_t own_;
  const Clock& clock_;
  LendingPolicy policy_;
  PageOffer offer_;
  std::unique_ptr<PageLender> lender_;
  std::unique_ptr<PartyLink> link_;
  std::int64_t wanted_ = 0;    // to lend
  std::int64_t target_ = 0;    // that is offered: not before the engine has left it
  std::int64_t reserved_ = 0;  // lent, offered, or about to be
};

class PageBorrowSession {
 public:
  // REQUIRES: settings.borrowed; loop and clock outlive the session.
  static Result<std::unique_ptr<PageBorrowSession>> open(const LendSettings& settings,
                                                         http::EventLoop& loop, const Clock& clock);

  void look();
  void send();
  void leave();

  std::int64_t borrowed_bytes() const { return memory_->given(); }

 private:
  PageBorrowSession(const LendSettings& settings, const std::string& party, const Clock& clock);

  const std::string url_;
  const std::shared_ptr<LentMemory> memory_;  // shared with the tier
  const Clock& clock_;
  LendingAgent agent_;
  std::unique_ptr<PageBorrower> borrower_;
  std::unique_ptr<PartyLink> link_;
  std::vector<LoanView> loans_;  // as the borrower was told
};

}  // namespace sluice
