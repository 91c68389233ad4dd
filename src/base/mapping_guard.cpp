#include "base/mapping_guard.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::uintptr_t kPageBytes = 4096;

// The handler reads ranges while other threads add and remove them. `begin` is written last, and 0
// means that the entry is free.
struct Range {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> faulted{false};
};

std::array<Range, MappingGuard::kMaxRanges> ranges;
std::mutex ranges_mutex;  // held to add or remove a range
struct sigaction previous_action{};

// Maps zeros from the missing page to the end of the range, because the pages after it are missing
// too.
bool fill_with_zeros(std::uintptr_t address) {
  for (Range& range : ranges) {
    const std::uintptr_t begin = range.begin.load(std::memory_order_acquire);
    const std::uintptr_t end = range.end.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= end) continue;
    range.faulted.store(true, std::memory_order_release);
    const std::uintptr_t page = address / kPageBytes * kPageBytes;
    // The kernel replaces the pages at once, so other threads may read them meanwhile. The thread
    // sanitizer takes mmap() for a write that races with them, and does not see the system call.
    return syscall(SYS_mmap, page, end - page, PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                   0) == static_cast<long>(page);
  }
  return false;
}

// Calls the previous action. If that is not a function, it is restored and takes effect when the
// instruction faults again.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else {
    sigaction(SIGBUS, &previous_action, nullptr);
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  if (!fill_with_zeros(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    pass_on(signal, info, context);
  }
  errno = saved;
}

// REQUIRES: the caller holds `ranges_mutex`.
void install_handler() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace

MappingGuard::MappingGuard(const std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(ranges_mutex);
  install_handler();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    Range& range = ranges[i];
    if (range.begin.load(std::memory_order_relaxed) != 0) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    range.faulted.store(false, std::memory_order_relaxed);
    range.end.store((begin + bytes + kPageBytes - 1) / kPageBytes * kPageBytes,
                    std::memory_order_release);
    range.begin.store(begin, std::memory_order_release);
    index_ = i;
    return;
  }
  log_warning(
      "too many mapped files to guard: if another program truncates an unguarded one, this process "
      "ends");
}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  if (this != &other) {
    release();
    index_ = std::exchange(other.index_, kNone);
  }
  return *this;
}

void MappingGuard::release() {
  if (index_ == kNone) return;
  const std::lock_guard lock(ranges_mutex);
  ranges[index_].begin.store(0, std::memory_order_release);
  index_ = kNone;
}

bool MappingGuard::faulted() const {
  return index_ != kNone && ranges[index_].faulted.load(std::memory_order_acquire);
}

}  // namespace sluice
