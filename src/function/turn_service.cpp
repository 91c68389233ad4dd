#include "function/turn_service.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

namespace sluice {
namespace {

class SignalledProcess final : public TurnProcess {
 public:
  explicit SignalledProcess(pid_t pid) : pid_(pid) {}

  // A process that has ended has used nothing.
  Duration cpu_time() const override {
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  void stop() override { ::kill(pid_, SIGSTOP); }
  void resume() override { ::kill(pid_, SIGCONT); }
  void kill() override { ::kill(pid_, SIGKILL); }

 private:
  const pid_t pid_;
};

// Every ring is an event, whether or not the bell was read since the last one.
Status listen_to(int bells, int bell) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (epoll_ctl(bells, EPOLL_CTL_ADD, bell, &event) == 0) return {};
  return resource_exhausted(std::string("cannot listen to a function's bell: ") +
                            std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<TurnService>> TurnService::start(const TurnKeeper::Options& options,
                                                        const Clock& clock) {
  ASSIGN_OR_RETURN(UrgentBoard board, UrgentBoard::create());
  std::unique_ptr<TurnService> service(new TurnService(options, clock, std::move(board)));
  service->bells_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  service->own_bell_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!service->bells_.valid() || !service->own_bell_.valid()) {
    return resource_exhausted(std::string("cannot create a function's bell: ") +
                              std::strerror(errno));
  }
  RETURN_IF_ERROR(listen_to(service->bells_.get(), service->own_bell_.get()));
  service->thread_ = std::thread([raw = service.get()] { raw->run(); });
  return service;
}

TurnService::~TurnService() {
  stopping_.store(true);
  if (!thread_.joinable()) return;
  ring();
  thread_.join();
}

void TurnService::ring() const {
  const std::uint64_t one = 1;
  static_cast<void>(write(own_bell_.get(), &one, sizeof(one)));
}

void TurnService::run() {
  static_cast<void>(pthread_setname_np(pthread_self(), "sluice-turns"));  // for top and gdb
  std::array<epoll_event, 16> events{};
  while (!stopping_.load()) {
    const auto next = keeper_.attend();
    int timeout = -1;
    if (next) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - clock_.now());
      timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
    }
    epoll_wait(bells_.get(), events.data(), static_cast<int>(events.size()), timeout);
  }
}

Result<std::unique_ptr<TurnService::Seat>> TurnService::add(const std::string& tenant,
                                                            Duration slow_step) {
  ASSIGN_OR_RETURN(TurnPages pages, TurnPages::create());
  RETURN_IF_ERROR(listen_to(bells_.get(), pages.bell_fd()));
  std::unique_ptr<Seat> seat(new Seat(*this, std::move(pages)));
  seat->id_ = keeper_.add(seat->pages_, tenant, slow_step);
  return seat;
}

TurnService::Seat::~Seat() {
  epoll_ctl(service_.bells_.get(), EPOLL_CTL_DEL, pages_.bell_fd(), nullptr);
  service_.keeper_.remove(id_);
  service_.ring();  // another function may have its place
}

void TurnService::Seat::attach(pid_t process) {
  service_.keeper_.attach(id_, std::make_unique<SignalledProcess>(process));
}

void TurnService::Seat::watch_cpu() { service_.keeper_.watch_cpu(id_); }

void TurnService::Seat::set_tenant(const std::string& tenant) {
  service_.keeper_.set_tenant(id_, tenant);
}

void TurnService::Seat::set_due(std::optional<TimePoint> due) {
  service_.keeper_.set_due(id_, due);
}

Duration TurnService::Seat::turn_time() const { return service_.keeper_.turn_time(id_); }

Duration TurnService::Seat::waited() const { return service_.keeper_.waited(id_); }

std::optional<Error> TurnService::Seat::failure() const { return service_.keeper_.failure(id_); }

}  // namespace sluice
