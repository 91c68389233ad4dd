#include "lent_pages/page_borrower.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "lent_pages/page_link.h"

namespace sluice {
namespace {

constexpr Duration kAnswerTime = std::chrono::seconds(5);
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// The chunks of one lender, as the tier's memory uses them. They outlive it.
class LentChunks final : public LentBytes {
 public:
  explicit LentChunks(DeviceChunks& chunks) : chunks_(chunks) {}
  Status write(std::uint64_t offset, std::span<const std::byte> source) override {
    return chunks_.write(offset, source);
  }
  Status read(std::uint64_t offset, std::span<std::byte> target) override {
    return chunks_.read(offset, target);
  }

 private:
  DeviceChunks& chunks_;
};

}  // namespace

struct PageBorrower::Impl {
  // Chunks of which the lender has not been told: its socket accepts no more for now.
  using Returns = std::deque<std::int64_t>;

  // A link that ends when the lender has heard of all that came by it.
  struct Ending {
    PageLink link;
    Returns returns;
  };

  struct Lender {
    std::string socket;
    std::int64_t keep = 0;
    std::optional<PageLink> link;
    PageNonce lender_nonce{};
    PageNonce nonce{};
    bool welcome = false;
    std::int64_t size = 0;                 // of its file, or of the chunks that are here
    std::unique_ptr<DeviceChunks> chunks;  // null: it lends a file
    std::vector<std::int64_t> numbers;     // of the chunks that are here, by place
    Returns returns;                       // of those that were here
    std::int64_t backed = 0;               // as it said
    std::int64_t used = 0;                 // as the memory was told
    TimePoint next{};   // try: when to connect again; else when it must have answered
    bool gone = false;  // there is no such loan any more
  };

  // `lent` is shared with the tier.
  Impl(std::string name, const HmacKey& link_key, std::shared_ptr<LentMemory> lent,
       const Clock& a_clock, OpenDeviceChunks open)
      : party(std::move(name)),
        key(link_key),
        memory(std::move(lent)),
        clock(a_clock),
        open_chunks(std::move(open)) {}

  ~Impl() {
    stopping = true;
    wake();
    if (thread.joinable()) thread.join();
    for (auto& [name, lender] : lenders) drop(name, lender);
  }

  void wake() const {
    const std::uint64_t one = 1;
    if (bell.valid()) static_cast<void>(::write(bell.get(), &one, sizeof(one)));
  }

  // ---------------------------------------------------------------- the thread

  void run() {
    std::vector<pollfd> polled;
    while (!stopping) {
      take_loans();
      Duration rest = std::chrono::seconds(1);
      polled.assign({{bell.get(), POLLIN, 0}});
      for (auto& [name, lender] : lenders) {
        act(name, lender);
        if (lender.link) polled.push_back({lender.link->fd(), events(POLLIN, lender.returns), 0});
        if (!lender.welcome) rest = std::min(rest, lender.next - clock.now());
      }
      std::erase_if(lenders, [](const auto& entry) { return entry.second.gone; });
      for (const Ending& each : endings) {
        polled.push_back({each.link.fd(), events(0, each.returns), 0});
      }
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(rest).count();
      static_cast<void>(
          ::poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(wait, 0))));
      std::uint64_t rings = 0;
      static_cast<void>(::read(bell.get(), &rings, sizeof(rings)));
      for (auto& [name, lender] : lenders) {
        if (lender.link && !send_returns(*lender.link, lender.returns)) drop(name, lender);
        listen_to(name, lender);
      }
      std::erase_if(endings, [](Ending& each) {
        return !send_returns(each.link, each.returns) || each.returns.empty();
      });
    }
  }

  static short events(int others, const Returns& returns) {
    return static_cast<short>(returns.empty() ? others : others | POLLOUT);
  }

  void take_loans() {
    std::vector<LoanView> now;
    std::uint64_t version = 0;
    {
      const std::lock_guard lock(mutex);
      now = loans;
      version = said;
    }
    for (auto& [name, lender] : lenders) {
      const bool there = std::ranges::any_of(now, [&](const LoanView& loan) {
        return loan.lease == name && loan.socket == lender.socket;
      });
      if (there) continue;
      drop(name, lender);
      lender.gone = true;
    }
    std::erase_if(lenders, [](const auto& entry) { return entry.second.gone; });
    for (const LoanView& loan : now) {
      if (loan.socket.empty()) continue;
      Lender& lender = lenders[loan.lease];
      lender.socket = loan.socket;
      lender.keep = loan.keep;
      use(loan.lease, lender);
    }
    const std::lock_guard lock(mutex);
    done = version;
    std::int64_t sum = 0;
    for (const auto& [name, lender] : lenders) sum += lender.keep;
    kept = sum;
  }

  void act(const std::string& name, Lender& lender) {
    const TimePoint now = clock.now();
    if (lender.welcome || now < lender.next) return;
    if (lender.link) {
      drop(name, lender);  // it has not answered
      return;
    }
    if (lender.keep == 0) {
      lender.next = now + kRetry;
      return;
    }
    auto socket = connect_for_pages(lender.socket);
    const auto nonce = random_page_nonce();
    if (!socket || !nonce) {
      lender.next = now + kRetry;
      return;
    }
    lender.nonce = *nonce;
    lender.link.emplace(*std::move(socket));
    lender.next = now + kAnswerTime;
  }

  void listen_to(const std::string& name, Lender& lender) {
    while (lender.link) {
      auto message = lender.link->receive();
      if (message && !*message) return;
      if (message && hear(name, lender, **message)) continue;
      drop(name, lender);
    }
  }

  // False: not what a lender with the token says.
  bool hear(const std::string& name, Lender& lender, PageMessage& message) {
    switch (message.kind) {
      case PageMessageKind::kChallenge: {
        if (lender.welcome) return false;
        lender.lender_nonce = message.nonce;
        PageMessage hello;
        hello.kind = PageMessageKind::kHello;
        hello.nonce = lender.nonce;
        hello.party = party;
        hello.tag = page_proof(key, PageEnd::kBorrower, lender.lender_nonce, lender.nonce, party);
        return lender.link->send(hello).value_or(false);
      }
      case PageMessageKind::kWelcome: return take_welcome(name, lender, message);
      case PageMessageKind::kChunk: return take_chunk(name, lender, message);
      case PageMessageKind::kBacked:
        if (!lender.welcome) return false;
        lender.backed = message.bytes;
        use(name, lender);
        return true;
      case PageMessageKind::kHello:
      case PageMessageKind::kReturned: return false;
    }
    return false;
  }

  bool take_welcome(const std::string& name, Lender& lender, PageMessage& message) {
    if (lender.welcome ||
        !equal_in_constant_time(message.tag, page_proof(key, PageEnd::kLender, lender.lender_nonce,
                                                        lender.nonce, party))) {
      return refuse(name, "the lender has not the coordinator's token");
    }
    return message.descriptor.valid() ? take_file(name, lender, message)
                                      : expect_chunks(name, lender, message.bytes);
  }

  bool take_file(const std::string& name, Lender& lender, PageMessage& message) {
    const int seals = ::fcntl(message.descriptor.get(), F_GET_SEALS);
    const auto size = shared_memory_size(message.descriptor.get(), "lent memory");
    if (seals < 0 || (seals & kSizeSeals) != kSizeSeals || !size) {
      return refuse(name, "the memory is not sealed");
    }
    lender.size = static_cast<std::int64_t>(*size);
    lender.welcome = true;
    memory->set(name, lent_file(std::move(message.descriptor)), 0);
    return true;
  }

  bool expect_chunks(const std::string& name, Lender& lender, std::int64_t chunk_bytes) {
    if (!open_chunks) return refuse(name, "it lends a GPU's memory, which needs --device cuda:N");
    auto chunks = open_chunks(memory->most());
    if (!chunks) return refuse(name, chunks.error().message);
    if ((*chunks)->chunk_bytes() != chunk_bytes) {
      return refuse(name, "its chunks have not the size of this device's");
    }
    lender.chunks = *std::move(chunks);
    lender.size = 0;
    lender.welcome = true;
    memory->set(name, std::make_unique<LentChunks>(*lender.chunks), 0);
    return true;
  }

  bool take_chunk(const std::string& name, Lender& lender, PageMessage& message) {
    if (!lender.chunks || !message.descriptor.valid()) {
      give_back(lender, message);
      return false;
    }
    const auto place = static_cast<std::int64_t>(lender.numbers.size());
    lender.backed = message.bytes;
    const Status here = place < lender.chunks->chunks()
                            ? lender.chunks->import(place, message.descriptor.get())
                            : Status(resource_exhausted("it gives more than --borrow-pages"));
    if (!here) {
      give_back(lender, message);
      return refuse(name, here.error().message);
    }
    lender.numbers.push_back(message.number);
    lender.size += lender.chunks->chunk_bytes();
    held += lender.chunks->chunk_bytes();
    use(name, lender);
    return true;
  }

  // The lender may try again and again.
  bool refuse(const std::string& name, std::string_view cause) {
    if (std::has_single_bit(++refused)) {
      log_warning(fmt::format("--borrow-pages: {} is not used: {}", name, cause));
    }
    return false;
  }

  // Tells the memory how much of the lender's memory may be used, and drops the chunks beyond.
  void use(const std::string& name, Lender& lender) {
    if (!lender.welcome) return;
    std::int64_t bytes = std::min({lender.keep, lender.backed, lender.size});
    if (lender.chunks) bytes -= bytes % lender.chunks->chunk_bytes();
    if (bytes != lender.used) memory->set(name, nullptr, bytes);
    lender.used = bytes;
    while (lender.chunks && lender.size > bytes) drop_chunk(lender);
  }

  // The last one. REQUIRES: the memory does not use it.
  void drop_chunk(Lender& lender) {
    const std::int64_t number = lender.numbers.back();
    lender.numbers.pop_back();
    lender.chunks->drop(static_cast<std::int64_t>(lender.numbers.size()));
    lender.size -= lender.chunks->chunk_bytes();
    held -= lender.chunks->chunk_bytes();
    lender.returns.push_back(number);
    send_some(lender);
  }

  // Nothing more crosses to this end, and what has crossed goes back: the lender counts each chunk
  // until it hears of it, or this process ends.
  static void return_unread(Lender& lender) {
    ::shutdown(lender.link->fd(), SHUT_RD);
    for (;;) {
      auto message = lender.link->receive();
      if (!message || !*message) return;
      if ((*message)->kind == PageMessageKind::kChunk) give_back(lender, **message);
    }
  }

  // A chunk that is not used. The descriptor is closed first, because the lender counts the memory
  // as its own from then on.
  static void give_back(Lender& lender, PageMessage& chunk) {
    chunk.descriptor = {};
    lender.returns.push_back(chunk.number);
    send_some(lender);
  }

  // The thread's loop finds out if the link is broken.
  static void send_some(Lender& lender) {
    static_cast<void>(send_returns(*lender.link, lender.returns));
  }

  // Sends what the socket accepts. False: the lender is gone, and no process counts these chunks.
  static bool send_returns(PageLink& link, Returns& returns) {
    while (!returns.empty()) {
      PageMessage message;
      message.kind = PageMessageKind::kReturned;
      message.number = returns.front();
      const auto sent = link.send(message);
      if (!sent) return false;
      if (!*sent) return true;
      returns.pop_front();
    }
    return true;
  }

  void drop(const std::string& name, Lender& lender) {
    memory->forget(name);
    while (!lender.numbers.empty()) drop_chunk(lender);
    if (lender.link) {
      return_unread(lender);
      const bool there = send_returns(*lender.link, lender.returns);
      if (there && !lender.returns.empty()) {
        endings.emplace_back(*std::move(lender.link), std::move(lender.returns));
      }
    }
    lender.chunks.reset();
    lender.link.reset();
    lender.returns.clear();
    lender.welcome = false;
    lender.backed = lender.used = 0;
    lender.next = clock.now() + kRetry;
  }

  const std::string party;
  const HmacKey key;
  const std::shared_ptr<LentMemory> memory;  // shared with the tier
  const Clock& clock;
  const OpenDeviceChunks open_chunks;
  std::atomic<std::int64_t> held = 0;  // chunks that are mapped
  FileDescriptor bell;
  std::atomic<bool> stopping = false;
  mutable std::mutex mutex;
  // Guarded by `mutex`.
  std::vector<LoanView> loans;
  std::uint64_t said = 0;  // calls of set_loans()
  std::uint64_t done = 0;  // of those, that the thread follows
  std::int64_t kept = 0;   // the sum of what it follows
  // Used by the thread only.
  std::map<std::string, Lender> lenders;  // by lease
  std::list<Ending> endings;
  std::uint64_t refused = 0;
  std::thread thread;
};

PageBorrower::PageBorrower(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageBorrower::~PageBorrower() = default;

// `memory` is shared with the tier.
Result<std::unique_ptr<PageBorrower>> PageBorrower::start(
    std::string party, const HmacKey& key,
    std::shared_ptr<LentMemory> memory,  // shared
    const Clock& clock, OpenDeviceChunks open_chunks) {
  auto impl = std::make_unique<Impl>(std::move(party), key, std::move(memory), clock,
                                     std::move(open_chunks));
  impl->bell = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!impl->bell.valid()) return resource_exhausted("no descriptor is free for borrowing pages");
  impl->thread = std::thread([raw = impl.get()] { raw->run(); });
  return std::unique_ptr<PageBorrower>(new PageBorrower(std::move(impl)));
}

void PageBorrower::set_loans(std::vector<LoanView> loans) {
  const std::lock_guard lock(impl_->mutex);
  ++impl_->said;
  impl_->loans = std::move(loans);
  impl_->wake();
}

// A message of a lender may still raise what is used while the thread does not follow the new
// loans. A chunk counts until it is no longer mapped.
std::int64_t PageBorrower::in_use() const {
  const std::int64_t given = std::max<std::int64_t>(impl_->memory->given(), impl_->held);
  const std::lock_guard lock(impl_->mutex);
  return impl_->done == impl_->said ? given : std::max(given, impl_->kept);
}

}  // namespace sluice
