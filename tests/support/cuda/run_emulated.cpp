#include "tests/support/cuda/run_emulated.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/check.h"
#include "tests/support/cuda/emulated_gpu.h"

extern "C" {
#define SLUICE_DECLARE_KERNEL(id, name, file, parameters, shared) \
  void sluice_##name(sluice::parameters p);
SLUICE_KERNELS(SLUICE_DECLARE_KERNEL)
#undef SLUICE_DECLARE_KERNEL
}

namespace sluice::cuda {
namespace emulation {

Index thread_index;
Index block_index;
Index block_dim;
Index grid_dim;

namespace {

constexpr unsigned kMaxThreads = 512;
constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxShared = std::size_t{227} << 10;  // of a block, capability 9.0
constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kCopyBytes = 16;
constexpr unsigned char kPoison = 0xFF;

alignas(128) unsigned char shared_memory[kMaxShared + kGuardBytes];

enum class State : std::uint8_t { kReady, kAtWarp, kAtBlock, kDone };

struct Copy {
  void* target;
  const void* source;  // null: zeros
  std::size_t group;   // 0: the oldest that is not waited for
};

struct Fiber {
  ucontext_t first = {};
  jmp_buf here = {};
  bool started = false;
  State state = State::kDone;
  Registers given[2];  // to the other lanes, by turns: all have read one before it is given anew
  unsigned exchanges = 0;
  std::vector<Copy> copies;  // not waited for
  std::size_t groups = 0;    // of copies, committed and not waited for
};

// Its fibers live as long as the process: making one costs system calls, switching does not.
struct Scheduler {
  std::vector<Fiber> fibers{kMaxThreads};
  std::byte* stacks = nullptr;
  jmp_buf here = {};
  std::function<void()> body;
  unsigned running = 0;
  unsigned launches = 0;
  bool trapped = false;
};

Scheduler& scheduler() {
  static Scheduler only;
  return only;
}

void leave(State state) {
  Fiber& fiber = scheduler().fibers[scheduler().running];
  fiber.state = state;
  if (_setjmp(fiber.here) == 0) _longjmp(scheduler().here, 1);
}

void run_fiber() {
  while (true) {
    scheduler().body();
    leave(State::kDone);
  }
}

void resume(unsigned thread) {
  Scheduler& s = scheduler();
  Fiber& fiber = s.fibers[thread];
  s.running = thread;
  thread_index = {thread, 0, 0};
  if (_setjmp(s.here) != 0) return;
  if (fiber.started) _longjmp(fiber.here, 1);
  fiber.started = true;
  CHECK(getcontext(&fiber.first) == 0);
  fiber.first.uc_stack.ss_sp = s.stacks + thread * kStackBytes;
  fiber.first.uc_stack.ss_size = kStackBytes;
  fiber.first.uc_link = nullptr;
  makecontext(&fiber.first, run_fiber, 0);
  setcontext(&fiber.first);
}

// Lets go on who waits at a barrier that all have reached; returns whether anyone did.
bool release(unsigned threads) {
  std::vector<Fiber>& fibers = scheduler().fibers;
  const auto all = [&](unsigned begin, unsigned end, State state) {
    return std::all_of(fibers.begin() + begin, fibers.begin() + end, [&](const Fiber& fiber) {
      return fiber.state == state || fiber.state == State::kDone;
    });
  };
  const auto free = [&](unsigned begin, unsigned end) {
    bool any = false;
    for (unsigned t = begin; t < end; ++t) {
      if (fibers[t].state == State::kDone) continue;
      fibers[t].state = State::kReady;
      any = true;
    }
    return any;
  };
  bool any = false;
  for (unsigned warp = 0; warp < threads; warp += kWarp) {
    const unsigned end = std::min(warp + kWarp, threads);
    if (all(warp, end, State::kAtWarp)) any = free(warp, end) || any;
  }
  return any || (all(0, threads, State::kAtBlock) && free(0, threads));
}

void run_block(unsigned threads, std::size_t shared_bytes) {
  Scheduler& s = scheduler();
  for (unsigned t = 0; t < threads; ++t) {
    s.fibers[t].state = State::kReady;
    s.fibers[t].exchanges = 0;
    s.fibers[t].groups = 0;
  }
  std::memset(shared_memory, kPoison, shared_bytes + kGuardBytes);
  const bool backwards = s.launches % 2 == 1;
  do {
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned t = backwards ? threads - 1 - i : i;
      if (s.fibers[t].state == State::kReady) resume(t);
    }
    if (s.trapped) break;
  } while (release(threads));
  if (s.trapped) {
    // The waiting fibers are in the middle of the kernel and must be reset.
    for (Fiber& fiber : s.fibers) fiber = {};
    return;
  }
  // A fiber that still waits is at a barrier that other fibers have left or never reach.
  for (unsigned t = 0; t < threads; ++t) {
    CHECK(s.fibers[t].state == State::kDone);
    CHECK(s.fibers[t].copies.empty());  // a copy was never waited for
  }
  CHECK(std::all_of(shared_memory + shared_bytes, shared_memory + shared_bytes + kGuardBytes,
                    [](unsigned char byte) { return byte == kPoison; }));
}

}  // namespace

void wait_for_block() { leave(State::kAtBlock); }

void wait_for_warp() { leave(State::kAtWarp); }

WarpRegisters exchange_registers(const Registers& own) {
  Scheduler& s = scheduler();
  const unsigned thread = s.running;
  const unsigned count = s.fibers[thread].exchanges++;
  s.fibers[thread].given[count % 2] = own;
  leave(State::kAtWarp);
  WarpRegisters all = {};
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    // Another lane may have gone on by one exchange, and no further.
    const Fiber& other = s.fibers[thread / kWarp * kWarp + lane];
    all.lanes[lane] = &other.given[count % 2];
    const bool took_part = other.exchanges == count + 1 || other.exchanges == count + 2;
    if (!took_part || all.lanes[lane]->instruction != own.instruction) trap();
  }
  return all;
}

float exchange(float value, int distance) {
  static constexpr const char* kShuffle = "shuffle";
  const unsigned lane = thread_index.x % kWarp;
  const WarpRegisters all = exchange_registers({kShuffle, nullptr, {bits_of(value)}});
  return float_of(all.lanes[lane ^ static_cast<unsigned>(distance)]->values[0]);
}

long long value_of_lane(long long value, int lane) {
  static constexpr const char* kShuffle = "shuffle";
  const auto bits = static_cast<unsigned long long>(value);
  const WarpRegisters all = exchange_registers(
      {kShuffle, nullptr, {static_cast<unsigned>(bits), static_cast<unsigned>(bits >> 32)}});
  const unsigned* given = all.lanes[static_cast<unsigned>(lane) % kWarp]->values;
  return static_cast<long long>(given[0] | static_cast<unsigned long long>(given[1]) << 32);
}

bool any_of_warp(bool value) {
  static constexpr const char* kVote = "vote";
  const WarpRegisters all = exchange_registers({kVote, nullptr, {value ? 1U : 0U}});
  return std::any_of(std::begin(all.lanes), std::end(all.lanes),
                     [](const Registers* lane) { return lane->values[0] != 0; });
}

unsigned char* dynamic_shared_memory() { return shared_memory; }

void start_copy(void* target, const void* source, bool present) {
  if (reinterpret_cast<std::uintptr_t>(target) % kCopyBytes != 0) trap();
  if (reinterpret_cast<std::uintptr_t>(source) % kCopyBytes != 0) trap();
  std::memset(target, kPoison, kCopyBytes);
  Fiber& fiber = scheduler().fibers[scheduler().running];
  fiber.copies.push_back({target, present ? source : nullptr, fiber.groups});
}

void commit_copies() { ++scheduler().fibers[scheduler().running].groups; }

void wait_for_copies(std::size_t groups_left) {
  Fiber& fiber = scheduler().fibers[scheduler().running];
  if (fiber.groups <= groups_left) return;
  const std::size_t done = fiber.groups - groups_left;
  std::vector<Copy> left;
  for (Copy copy : fiber.copies) {
    if (copy.group >= done) {
      copy.group -= done;
      left.push_back(copy);
    } else if (copy.source == nullptr) {
      std::memset(copy.target, 0, kCopyBytes);
    } else {
      std::memcpy(copy.target, copy.source, kCopyBytes);
    }
  }
  fiber.copies = std::move(left);
  fiber.groups = groups_left;
}

void trap() {
  scheduler().trapped = true;
  leave(State::kDone);
  check_failed(__FILE__, __LINE__, "a trapped thread goes on");
}

bool run_grid(const LaunchShape& shape, std::function<void()> body) {
  Scheduler& s = scheduler();
  CHECK(shape.block <= kMaxThreads && shape.block % kWarp == 0);
  CHECK(shape.shared_bytes <= kMaxShared);
  if (s.stacks == nullptr) {
    void* stacks = mmap(nullptr, kMaxThreads * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stacks != MAP_FAILED);
    s.stacks = static_cast<std::byte*>(stacks);
  }
  s.body = std::move(body);
  s.trapped = false;
  ++s.launches;
  block_dim = {shape.block, 1, 1};
  grid_dim = {shape.grid_x, shape.grid_y, 1};
  for (unsigned y = 0; y < shape.grid_y && !s.trapped; ++y) {
    for (unsigned x = 0; x < shape.grid_x && !s.trapped; ++x) {
      block_index = {x, y, 0};
      run_block(shape.block, shape.shared_bytes);
    }
  }
  return !s.trapped;
}

}  // namespace emulation

namespace {

template <class Params>
bool run(void (*kernel)(Params), const LaunchShape& shape, const void* bytes) {
  Params params;
  std::memcpy(static_cast<void*>(&params), bytes, sizeof(params));
  return emulation::run_grid(shape, [&] { kernel(params); });
}

}  // namespace

bool run_emulated(KernelId id, const LaunchShape& shape, const void* params) {
  switch (id) {
#define SLUICE_RUN_KERNEL(id, name, file, parameters, shared) \
  case KernelId::id: return run(sluice_##name, shape, params);
    SLUICE_KERNELS(SLUICE_RUN_KERNEL)
#undef SLUICE_RUN_KERNEL
    case KernelId::kCount: break;
  }
  CHECK(!"no such kernel");
  return false;
}

}  // namespace sluice::cuda
