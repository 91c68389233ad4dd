#include "lent_pages/page_lender.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/large_pages.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "lent_pages/page_link.h"

namespace sluice {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kStep = std::int64_t{32} << 20;  // of memory, between two looks at the time
constexpr Duration kHelloTime = std::chrono::seconds(2);
constexpr Duration kSweep = std::chrono::seconds(1);
constexpr std::size_t kMaxLinks = 256;

std::int64_t whole_pages(std::int64_t bytes) { return bytes / kPage * kPage; }

// The memory that the system has given for the file.
std::int64_t taken_bytes(const FileDescriptor& file) {
  struct stat facts{};
  return ::fstat(file.get(), &facts) == 0 ? static_cast<std::int64_t>(facts.st_blocks) * 512 : 0;
}

bool punch(const FileDescriptor& file, std::int64_t from, std::int64_t end) {
  if (from >= end) return true;
  for (;;) {
    if (::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, end - from) ==
        0) {
      return true;
    }
    if (errno != EINTR) return false;
  }
}

// A seal against more seals, so that no borrower can seal the file against the punch.
Result<FileDescriptor> make_file(std::int64_t bytes) {
  ASSIGN_OR_RETURN(FileDescriptor file,
                   create_shared_memory("sluice-lent-pages", static_cast<std::size_t>(bytes)));
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL) == 0) return file;
  return internal_error(fmt::format("cannot seal lent memory: {}", std::strerror(errno)));
}

}  // namespace

struct PageLender::Impl {
  struct Borrower {
    explicit Borrower(FileDescriptor socket, const PageNonce& own)
        : link(std::move(socket)), nonce(own) {}

    PageLink link;
    PageNonce nonce;
    TimePoint since;
    std::string party;  // empty: the token is not proved
    FileDescriptor file;
    std::int64_t size = 0;   // of the file
    std::int64_t given = 0;  // of it
    std::int64_t told = -1;
    bool broken = false;
  };

  Impl(Options given, const Clock& a_clock) : options(std::move(given)), clock(a_clock) {}

  ~Impl() {
    stopping = true;
    wake();
    if (thread.joinable()) thread.join();
    for (Borrower& borrower : borrowers) end(borrower);
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
      for (Borrower& borrower : borrowers) {
        const bool writes = !borrower.party.empty() && borrower.told != borrower.given;
        polled.push_back(
            {borrower.link.fd(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
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
      borrower.since = clock.now();
      PageMessage challenge;
      challenge.nonce = borrower.nonce;
      if (!borrower.link.send(challenge).value_or(false)) borrower.broken = true;
    }
  }

  void listen_to(Borrower& borrower) {
    while (!borrower.broken) {
      auto message = borrower.link.receive();
      if (!message) {
        borrower.broken = true;
        return;
      }
      if (!*message) return;
      borrower.broken = !borrower.party.empty() || !welcome(borrower, **message);
    }
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
    auto file = make_file(options.most);
    if (!file) {
      log_warning(fmt::format("--lend-pages: {}", file.error().message));
      return false;
    }
    // A later connection of the same party takes the place of this one.
    for (Borrower& other : borrowers) {
      if (other.party == hello.party) other.broken = true;
    }
    borrower.broken = false;
    borrower.file = *std::move(file);
    borrower.size = options.most;
    borrower.party = hello.party;
    PageMessage answer;
    answer.kind = PageMessageKind::kWelcome;
    answer.tag =
        page_proof(options.key, PageEnd::kLender, borrower.nonce, hello.nonce, hello.party);
    return borrower.link.send(answer, borrower.file.get()).value_or(false);
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
    std::int64_t before = 0;
    // Memory comes back first, so that growth finds it free.
    for (Borrower& borrower : borrowers) {
      if (borrower.party.empty() && now - borrower.since >= kHelloTime) borrower.broken = true;
      if (borrower.broken || borrower.party.empty()) continue;
      const PageGrant grant = grant_of(granted, borrower);
      const bool recalled = grant.keep < grant.bytes;
      const Duration left = grant.until - now - taking;
      const bool begins = recalled && left <= Duration{0};
      if (recalled && !begins) rest = std::min(rest, left);
      const std::int64_t bytes = whole_pages(
          std::clamp<std::int64_t>(begins ? grant.keep : grant.bytes, 0, borrower.size));
      if (bytes < borrower.given) {
        const bool taken = take(borrower, std::max(bytes, borrower.given - kStep));
        if (taken && borrower.given > bytes) rest = Duration{0};
        if (recalled && borrower.given == bytes) note_return(clock.now() - grant.until);
      } else if (taken_bytes(borrower.file) > borrower.given) {
        static_cast<void>(take(borrower, borrower.given));  // a hole that was filled again
      }
      before += borrower.given;
    }
    for (Borrower& borrower : borrowers) {
      const auto found = granted.find(borrower.party);
      if (borrower.broken || found == granted.end() || found->second.keep < found->second.bytes) {
        continue;
      }
      const std::int64_t wanted = whole_pages(std::min(found->second.bytes, borrower.size));
      const std::int64_t bytes =
          std::min({wanted, borrower.given + kStep, borrower.given + options.most - before});
      if (bytes <= borrower.given) continue;
      before -= borrower.given;
      if (grow(borrower, bytes) && bytes < wanted) rest = Duration{0};
      before += borrower.given;
    }
    count();
    for (Borrower& borrower : borrowers) tell(borrower);
    std::erase_if(borrowers, [](Borrower& borrower) {
      if (borrower.broken) end(borrower);
      return borrower.broken;
    });
    count();
    return rest;
  }

  using Grants = std::map<std::string, PageGrant>;
  static PageGrant grant_of(const Grants& granted, const Borrower& borrower) {
    const auto found = granted.find(borrower.party);
    return found == granted.end() ? PageGrant{} : found->second;
  }

  // How long the holes of all recalls take: one thread punches them.
  Duration time_to_take(const Grants& granted) const {
    std::int64_t bytes = 0;
    for (const Borrower& borrower : borrowers) {
      const PageGrant grant = grant_of(granted, borrower);
      if (borrower.broken || grant.keep >= grant.bytes) continue;
      bytes += std::max<std::int64_t>(borrower.given - grant.keep, 0);
    }
    return from_seconds(static_cast<double>(bytes) / options.take_rate);
  }

  bool take(Borrower& borrower, std::int64_t bytes) {
    if (!punch(borrower.file, bytes, borrower.size)) {
      log_error(fmt::format("--lend-pages: memory cannot be taken back from {}: {}", borrower.party,
                            std::strerror(errno)));
      return false;
    }
    borrower.given = bytes;
    return true;
  }

  // The system gives the memory now, to this process.
  bool grow(Borrower& borrower, std::int64_t bytes) {
    const std::int64_t step = bytes - borrower.given;
    const bool there = !options.available || options.available() >= step + kSpare;
    if (there) ask_for_large_pages(borrower, step);
    if (there && ::fallocate(borrower.file.get(), 0, borrower.given, step) == 0) {
      borrower.given = bytes;
      return true;
    }
    // The call may have got a part before it failed.
    if (there) static_cast<void>(punch(borrower.file, borrower.given, borrower.size));
    if (!std::exchange(short_of_memory, true)) {
      log_warning("--lend-pages: the system has no memory to lend more");
    }
    return false;
  }

  // Large pages go back to the system some fifty times as fast as small ones. The range begins with
  // the last 2 MiB that an earlier step did not fill.
  void ask_for_large_pages(const Borrower& borrower, std::int64_t step) {
    const std::int64_t from = borrower.given / kLargePageBytes * kLargePageBytes;
    if (take_large_pages(borrower.file.get(), from, borrower.given + step - from)) return;
    if (std::exchange(has_small_pages, true)) return;
    log_warning(fmt::format(
        "--lend-pages: the system gave no large pages for shared memory (shmem_enabled: {}), so "
        "1 GiB needs more than 100 ms to come back; to change that: {}",
        shared_large_page_rule(), kLargePageAdvice));
  }

  void tell(Borrower& borrower) {
    if (borrower.broken || borrower.party.empty() || borrower.told == borrower.given) return;
    PageMessage message;
    message.kind = PageMessageKind::kBacked;
    message.bytes = borrower.given;
    const auto sent = borrower.link.send(message);
    if (!sent) borrower.broken = true;
    if (sent && *sent) borrower.told = borrower.given;  // else again, when the socket accepts it
  }

  static void end(Borrower& borrower) {
    // The borrower may still have the file open.
    if (borrower.file.valid()) static_cast<void>(punch(borrower.file, 0, borrower.size));
  }

  void count() {
    std::int64_t bytes = 0;
    std::int32_t there = 0;
    for (const Borrower& borrower : borrowers) {
      if (borrower.party.empty()) continue;
      bytes += std::max(borrower.given, taken_bytes(borrower.file));
      ++there;
    }
    backed = bytes;
    connected = there;
  }

  void note_return(Duration late) {
    Duration before = latest;
    while (late > before && !latest.compare_exchange_weak(before, late)) {
    }
  }

  const Options options;
  const Clock& clock;
  FileDescriptor listener;
  FileDescriptor bell;
  std::atomic<bool> stopping = false;
  std::atomic<std::int64_t> backed = 0;
  std::atomic<std::int32_t> connected = 0;
  std::atomic<std::int64_t> refused = 0;
  std::atomic<Duration> latest{Duration{0}};
  std::mutex mutex;
  std::vector<PageGrant> grants;  // guarded by `mutex`
  // Used by the thread only.
  std::list<Borrower> borrowers;
  bool short_of_memory = false;  // the log has it
  bool has_small_pages = false;  // the log has it
  std::thread thread;
};

PageLender::PageLender(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageLender::~PageLender() = default;

Result<std::unique_ptr<PageLender>> PageLender::start(const Options& options, const Clock& clock) {
  CHECK(options.most > 0 && options.take_rate > 0);
  auto impl = std::make_unique<Impl>(options, clock);
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
std::int32_t PageLender::borrowers() const { return impl_->connected; }
std::int64_t PageLender::refused() const { return impl_->refused; }
Duration PageLender::latest_return() const { return impl_->latest; }

}  // namespace sluice
