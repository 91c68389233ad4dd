#include "lent_pages/page_lender.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "lent_pages/chunk_part.h"
#include "lent_pages/file_part.h"
#include "lent_pages/page_link.h"

namespace sluice {
namespace {

constexpr Duration kHelloTime = std::chrono::seconds(2);
constexpr Duration kSweep = std::chrono::seconds(1);
// After a borrower gave back what it may still use: its loan, as it knows it, is behind the grant.
constexpr Duration kGrowAgain = std::chrono::milliseconds(250);
constexpr std::size_t kMaxLinks = 256;

std::int64_t rounded_down(std::int64_t bytes, std::int64_t unit) { return bytes / unit * unit; }

// A descriptor of the process that connected. The proof that it sends afterwards shows that it
// still ran when this was opened, so the number is not another process's by now.
FileDescriptor process_of(const PageLink& link) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(link.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
    return {};
  }
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
}

std::unique_ptr<LentStore> make_store(PageLender::Options& options) {
  if (options.chunks) return make_chunk_store(std::move(options.chunks), PageLender::kSpare);
  return make_file_store(options.most, options.available, PageLender::kSpare);
}

}  // namespace

struct PageLender::Impl {
  struct Borrower {
    explicit Borrower(FileDescriptor socket, const PageNonce& own)
        : link(std::move(socket)), nonce(own) {}

    PageLink link;
    PageNonce nonce;
    FileDescriptor process;  // until there is a part
    TimePoint since;
    std::string party;
    std::unique_ptr<LentPart> part;  // null: the token is not proved
    bool owes = false;               // memory that it may not use any more
    TimePoint due{};                 // when it was to be back
    bool told_of = false;            // the log has it
    TimePoint grows_at{};
    bool broken = false;   // gets nothing more, and stays here until its memory is back
    bool is_shut = false;  // and was told so
    bool closed = false;   // says nothing more
  };

  Impl(Options given, const Clock& a_clock)
      : options(std::move(given)), clock(a_clock), store(make_store(options)) {}

  ~Impl() {
    stopping = true;
    wake();
    if (thread.joinable()) thread.join();
  }

  Status open() {
    ASSIGN_OR_RETURN(listener, listen_for_pages(options.socket));
    bell = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!bell.valid()) return resource_exhausted("no descriptor is free for lending pages");
    thread = std::thread([this] { run(); });
    return {};
  }

  void wake() const {
    const std::uint64_t one = 1;
    if (bell.valid()) static_cast<void>(::write(bell.get(), &one, sizeof(one)));
  }

  // ---------------------------------------------------------------- the thread

  void run() {
    std::vector<pollfd> polled;
    while (!stopping) {
      const Duration rest = apply();
      polled.assign({{bell.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}});
      for (const Borrower& borrower : borrowers) {
        const bool writes = !borrower.broken && borrower.part && borrower.part->has_news();
        polled.push_back({borrower.closed ? -1 : borrower.link.fd(),
                          static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
        if (borrower.broken) polled.push_back({borrower.part->ending(), POLLIN, 0});
      }
      // Rounded up, so that a deadline is over when poll() returns.
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
      static_cast<void>(::poll(polled.data(), polled.size(), static_cast<int>(wait)));
      std::uint64_t rings = 0;
      static_cast<void>(::read(bell.get(), &rings, sizeof(rings)));
      accept_all();
      for (Borrower& borrower : borrowers) listen_to(borrower);
    }
  }

  void accept_all() {
    for (;;) {
      FileDescriptor socket(
          ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) return;
      const auto nonce = random_page_nonce();
      if (borrowers.size() >= kMaxLinks || !nonce) continue;
      Borrower& borrower = borrowers.emplace_back(std::move(socket), *nonce);
      borrower.process = process_of(borrower.link);
      borrower.since = clock.now();
      PageMessage challenge;
      challenge.nonce = borrower.nonce;
      if (!borrower.link.send(challenge).value_or(false)) borrower.broken = true;
    }
  }

  void listen_to(Borrower& borrower) {
    while (!borrower.closed) {
      auto message = borrower.link.receive();
      if (!message) {
        borrower.broken = borrower.closed = true;
        return;
      }
      if (!*message) return;
      const bool right = borrower.part ? hear(borrower, **message) : welcome(borrower, **message);
      borrower.broken = borrower.broken || !right;
      borrower.closed = !right;
    }
  }

  bool hear(Borrower& borrower, const PageMessage& message) const {
    const std::int64_t before = borrower.part->usable();
    if (!borrower.part->hear(message)) return false;
    if (borrower.part->usable() < before) borrower.grows_at = clock.now() + kGrowAgain;
    return true;
  }

  // False: it has not the token, or the system has no memory for it.
  bool welcome(Borrower& borrower, const PageMessage& hello) {
    if (hello.kind != PageMessageKind::kHello || hello.party.empty() ||
        !equal_in_constant_time(hello.tag, page_proof(options.key, PageEnd::kBorrower,
                                                      borrower.nonce, hello.nonce, hello.party))) {
      // The process may try again and again.
      if (std::has_single_bit(static_cast<std::uint64_t>(++refused))) {
        log_warning("--lend-pages: a process without the coordinator's token was refused");
      }
      return false;
    }
    auto part = store->open(std::move(borrower.process));
    if (!part) {
      if (std::has_single_bit(static_cast<std::uint64_t>(++refused))) {
        log_warning(fmt::format("--lend-pages: {}", part.error().message));
      }
      return false;
    }
    // A later connection of the same party takes the place of this one.
    for (Borrower& other : borrowers) {
      if (&other != &borrower && other.party == hello.party) other.broken = true;
    }
    borrower.part = *std::move(part);
    borrower.party = hello.party;
    PageMessage answer;
    answer.kind = PageMessageKind::kWelcome;
    answer.tag =
        page_proof(options.key, PageEnd::kLender, borrower.nonce, hello.nonce, hello.party);
    answer.bytes = borrower.part->chunk_bytes();
    return borrower.link.send(answer, borrower.part->descriptor()).value_or(false);
  }

  // Follows the grants. Returns when it is to be called again.
  Duration apply() {
    const TimePoint now = clock.now();
    Grants granted;
    {
      const std::lock_guard lock(mutex);
      for (const PageGrant& grant : grants) granted[grant.party] = grant;
    }
    Duration rest = kSweep;
    const Duration taking = time_to_take(granted);
    // Memory comes back first, so that growth finds it free.
    std::int64_t late = 0;
    for (Borrower& borrower : borrowers) {
      if (!borrower.part && now - borrower.since >= kHelloTime) borrower.broken = true;
      if (borrower.broken || !borrower.part) continue;
      rest = std::min(rest, shrink(borrower, grant_of(granted, borrower), now, taking));
      if (borrower.owes && now >= borrower.due) {
        late += borrower.part->given() - borrower.part->usable();
      }
    }
    std::int64_t before = 0;
    for (const Borrower& borrower : borrowers) before += given(borrower);
    for (Borrower& borrower : borrowers) {
      if (borrower.broken || !borrower.part) continue;
      before -= given(borrower);
      rest = std::min(rest, grow(borrower, grant_of(granted, borrower), now, before));
      before += given(borrower);
    }
    count();
    for (Borrower& borrower : borrowers) {
      if (!borrower.broken && borrower.part && !borrower.part->tell(borrower.link)) {
        borrower.broken = true;
      }
    }
    std::erase_if(borrowers, [](const Borrower& borrower) {
      return borrower.broken && (!borrower.part || borrower.part->end());
    });
    for (Borrower& borrower : borrowers) {
      if (!borrower.broken) continue;
      late += given(borrower);
      // It may still say what it gives back.
      if (!std::exchange(borrower.is_shut, true)) ::shutdown(borrower.link.fd(), SHUT_WR);
    }
    overdue = late;
    count();
    return rest;
  }

  using Grants = std::map<std::string, PageGrant>;
  static PageGrant grant_of(const Grants& granted, const Borrower& borrower) {
    const auto found = granted.find(borrower.party);
    return found == granted.end() ? PageGrant{} : found->second;
  }
  static std::int64_t given(const Borrower& borrower) {
    return borrower.part ? borrower.part->given() : 0;
  }

  // How long the holes of all recalls take: one thread punches them.
  Duration time_to_take(const Grants& granted) const {
    std::int64_t bytes = 0;
    for (const Borrower& borrower : borrowers) {
      const PageGrant grant = grant_of(granted, borrower);
      if (borrower.broken || !borrower.part || grant.keep >= grant.bytes) continue;
      bytes += std::max<std::int64_t>(borrower.part->usable() - grant.keep, 0);
    }
    return from_seconds(static_cast<double>(bytes) / options.take_rate);
  }

  // Takes back what the borrower may not use any more. Returns when it is to be called again.
  Duration shrink(Borrower& borrower, const PageGrant& grant, TimePoint now, Duration taking) {
    LentPart& part = *borrower.part;
    Duration rest = kSweep;
    const bool recalled = grant.keep < grant.bytes;
    // A borrower whose consent it needs hears of it at once.
    const Duration left = part.by_consent() ? Duration{0} : grant.until - now - taking;
    const bool begins = recalled && left <= Duration{0};
    if (recalled && !begins) rest = left;
    const std::int64_t bytes = rounded_down(
        std::clamp<std::int64_t>(begins ? grant.keep : grant.bytes, 0, part.size()), part.unit());
    if (part.given() > bytes && !std::exchange(borrower.owes, true)) borrower.due = now + kSweep;
    if (recalled) borrower.due = grant.until;
    if (bytes < part.usable() || part.counted() > part.given()) {
      const Status taken = part.take(std::min(bytes, part.usable()));  // or a hole filled again
      if (!taken) {
        log_error(fmt::format("--lend-pages: memory cannot be taken back from {}: {}",
                              borrower.party, taken.error().message));
      } else if (part.usable() > bytes) {
        rest = Duration{0};
      }
    }
    if (!borrower.owes) return rest;
    if (part.given() <= bytes) {
      if (recalled) note_return(clock.now() - grant.until);
      borrower.owes = borrower.told_of = false;
    } else if (part.by_consent() && now < borrower.due) {
      rest = std::min(rest, borrower.due - now);
    } else if (part.by_consent() && now >= borrower.due + kSweep) {
      tell_of(borrower, part.given() - bytes);
    }
    return rest;
  }

  static void tell_of(Borrower& borrower, std::int64_t bytes) {
    if (std::exchange(borrower.told_of, true)) return;
    log_warning(fmt::format(
        "--lend-pages: {} has not given back {} MiB of the GPU's memory, which cannot be taken "
        "from a process; they are back when it gives them back or ends",
        borrower.party, bytes >> 20));
  }

  // Gives the borrower more, by a step. `others`: what all others have.
  Duration grow(Borrower& borrower, const PageGrant& grant, TimePoint now, std::int64_t others) {
    LentPart& part = *borrower.part;
    if (grant.keep < grant.bytes) return kSweep;
    const std::int64_t wanted =
        rounded_down(std::min({grant.bytes, part.size(), options.most - others}), part.unit());
    if (wanted <= part.usable()) return kSweep;
    if (now < borrower.grows_at) return borrower.grows_at - now;
    const Status grown = part.grow(std::min(wanted, part.usable() + part.step()));
    if (grown) return part.usable() < wanted ? Duration{0} : kSweep;
    if (!std::exchange(short_of_memory, true)) {
      log_warning(fmt::format("--lend-pages: {}", grown.error().message));
    }
    return kSweep;
  }

  void count() {
    std::int64_t bytes = 0;
    std::int32_t there = 0;
    for (const Borrower& borrower : borrowers) {
      if (!borrower.part) continue;
      bytes += borrower.part->counted();
      there += borrower.broken ? 0 : 1;
    }
    backed = bytes;
    connected = there;
  }

  void note_return(Duration late) {
    Duration before = latest;
    while (late > before && !latest.compare_exchange_weak(before, late)) {
    }
  }

  Options options;
  const Clock& clock;
  const std::unique_ptr<LentStore> store;
  FileDescriptor listener;
  FileDescriptor bell;
  std::atomic<bool> stopping = false;
  std::atomic<std::int64_t> backed = 0;
  std::atomic<std::int64_t> overdue = 0;
  std::atomic<std::int32_t> connected = 0;
  std::atomic<std::int64_t> refused = 0;
  std::atomic<Duration> latest{Duration{0}};
  std::mutex mutex;
  std::vector<PageGrant> grants;  // guarded by `mutex`
  // Used by the thread only.
  std::list<Borrower> borrowers;
  bool short_of_memory = false;  // the log has it
  std::thread thread;
};

PageLender::PageLender(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageLender::~PageLender() = default;

Result<std::unique_ptr<PageLender>> PageLender::start(Options options, const Clock& clock) {
  CHECK(options.most > 0 && options.take_rate > 0);
  auto impl = std::make_unique<Impl>(std::move(options), clock);
  RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<PageLender>(new PageLender(std::move(impl)));
}

void PageLender::set_grants(std::vector<PageGrant> grants) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->grants == grants) return;
    impl_->grants = std::move(grants);
  }
  impl_->wake();
}

std::int64_t PageLender::backed() const { return impl_->backed; }
std::int64_t PageLender::overdue() const { return impl_->overdue; }
std::int32_t PageLender::borrowers() const { return impl_->connected; }
std::int64_t PageLender::refused() const { return impl_->refused; }
Duration PageLender::latest_return() const { return impl_->latest; }

}  // namespace sluice
