#include "apps/page_session.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "device/cpu/host_memory.h"
#include "device/cuda_device.h"
#include "lent_pages/page_link.h"

namespace sluice {
namespace {

std::int64_t available_memory() {
  const auto info = read_host_memory("/");
  return info ? info->free_bytes : 0;
}

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max() / 4;

}  // namespace

// ---------------------------------------------------------------- lending

PageLendSession::PageLendSession(const LendSettings& settings, std::string socket,
                                 const Clock& clock)
    : url_(settings.url_text),
      own_(settings.lend_pages),
      clock_(clock),
      policy_(settings.least, kNoLimit),
      offer_({.party = lend_party_name("lends"),
              .device = settings.device,
              .socket = std::move(socket),
              .key_prefix = random_lend_word()}) {}

Result<std::unique_ptr<PageLendSession>> PageLendSession::open(const LendSettings& settings,
                                                               http::EventLoop& loop,
                                                               const Clock& clock) {
  const std::string socket = "sluice-pages-" + random_lend_word();
  auto session = std::unique_ptr<PageLendSession>(new PageLendSession(settings, socket, clock));
  PageLendSession* const raw = session.get();
  PageLender::Options options{.socket = socket,
                              .key = page_link_key(settings.token->header()),
                              .most = settings.lend_pages,
                              .available = available_memory};
  if (settings.gpu) {
    auto chunks = make_cuda_chunks(*settings.gpu, settings.lend_pages);
    if (!chunks) return with_context("--lend-pages", std::move(chunks).error());
    options.chunks = *std::move(chunks);
  }
  auto lender = PageLender::start(std::move(options), clock);
  if (!lender) return with_context("--lend-pages", std::move(lender).error());
  session->lender_ = *std::move(lender);
  ASSIGN_OR_RETURN(
      session->link_,
      PartyLink::open(
          settings.url, *settings.token, loop,
          {.answer =
               [raw](const LendAnswer& answer) { raw->offer_.answer(raw->clock_.now(), answer); },
           .failed = [raw](const std::string&) { raw->offer_.failed(raw->clock_.now()); }}));
  return session;
}

void PageLendSession::look(const LendingLoad& load, std::int64_t base, bool pressed) {
  const TimePoint now = clock_.now();
  const LendingWish wish = policy_.decide(now, load);
  if (pressed) {
    wanted_ = 0;  // the system needs it more than any tier does
  } else if (wish.want > 0) {
    wanted_ = std::max<std::int64_t>(wanted_ - wish.want, 0);
  } else {
    wanted_ = std::min(own_, wanted_ + wish.spare);
  }
  const bool left = load.backed <= base + own_ - wanted_;
  target_ = left ? wanted_ : std::min(target_, wanted_);
  const std::int64_t backed = lender_->backed();
  offer_.update(now, target_, backed);
  const std::vector<PageGrant> grants = offer_.grants();
  std::int64_t granted = 0;
  for (const PageGrant& grant : grants) granted += grant.bytes;
  lender_->set_grants(grants);
  reserved_ = std::min(own_, std::max({wanted_, granted, backed}));
}

void PageLendSession::send() {
  if (const auto message = offer_.next(clock_.now())) link_->send(*message);
}

void PageLendSession::leave() {
  lender_.reset();  // its memory is free now
  link_->leave(offer_.leave(), url_);
}

// ---------------------------------------------------------------- borrowing

PageBorrowSession::PageBorrowSession(const LendSettings& settings, const std::string& party,
                                     const Clock& clock)
    : url_(settings.url_text),
      memory_(settings.borrowed),
      clock_(clock),
      agent_({.party = party,
              .device = settings.device,
              .key_prefix = random_lend_word(),
              .least = 0,
              .most = settings.borrowed->most(),
              .kind = LendKind::kPages}) {}

Result<std::unique_ptr<PageBorrowSession>> PageBorrowSession::open(const LendSettings& settings,
                                                                   http::EventLoop& loop,
                                                                   const Clock& clock) {
  const std::string party = lend_party_name("borrows");
  auto session = std::unique_ptr<PageBorrowSession>(new PageBorrowSession(settings, party, clock));
  PageBorrowSession* const raw = session.get();
  OpenDeviceChunks chunks;
  if (settings.gpu) {
    chunks = [gpu = *settings.gpu](std::int64_t bytes) { return make_cuda_chunks(gpu, bytes); };
  }
  auto borrower = PageBorrower::start(party, page_link_key(settings.token->header()),
                                      settings.borrowed, clock, std::move(chunks));
  if (!borrower) return with_context("--borrow-pages", std::move(borrower).error());
  session->borrower_ = *std::move(borrower);
  ASSIGN_OR_RETURN(
      session->link_,
      PartyLink::open(
          settings.url, *settings.token, loop,
          {.answer = [raw](const LendAnswer& answer) { raw->agent_.answer(answer); },
           .failed = [raw](const std::string&) { raw->agent_.failed(raw->clock_.now()); }}));
  return session;
}

void PageBorrowSession::look() {
  if (std::vector<LoanView> loans = agent_.loans(); loans != loans_) {
    loans_ = std::move(loans);
    borrower_->set_loans(loans_);
  }
  LendingLoad load;
  load.limit = agent_.limit();
  load.used = memory_->held();
  load.backed = borrower_->in_use();
  load.waiting = memory_->usable() == 0 ? 1 : 0;
  agent_.update(clock_.now(), load);
}

void PageBorrowSession::send() {
  if (const auto message = agent_.next(clock_.now())) link_->send(*message);
}

void PageBorrowSession::leave() {
  borrower_.reset();
  link_->leave(agent_.leave(), url_);
}

}  // namespace sluice
