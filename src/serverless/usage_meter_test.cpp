#include "serverless/usage_meter.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace sluice {
namespace {

TimePoint after_ns(std::int64_t ns) { return {Duration(ns)}; }

constexpr MachineCapacity kMachine{4, {1000, 500, 0}};
constexpr std::size_t kHost = 0;
constexpr std::size_t kDevice = 1;

std::int64_t small(Amount amount) { return static_cast<std::int64_t>(amount); }

TEST(UsageMeterTest, CountsTurnsBytesAndRequests) {
  UsageMeter meter(kMachine, after_ns(0));
  const std::int32_t f = meter.add_function();
  meter.set_bytes(after_ns(10), f, MemoryKind::kHost, 100);
  meter.set_active(after_ns(30), f, true);
  meter.set_cores(after_ns(40), f, 3);
  meter.set_cores(after_ns(60), f, 0);
  meter.count_request(f);
  meter.set_active(after_ns(80), f, false);
  const FunctionUsage usage = meter.of(f, after_ns(100));
  EXPECT_EQ(small(usage.core_ns), 60);
  EXPECT_EQ(small(usage.memory[kHost].active), 100 * 50);
  EXPECT_EQ(small(usage.memory[kHost].idle), 100 * 40);
  EXPECT_EQ(usage.requests, 1);
  const FunctionUsage rest = meter.platform(after_ns(100));
  EXPECT_EQ(small(rest.core_ns), 400 - 60);
  EXPECT_EQ(small(rest.memory[kHost].idle), 1000 * 100 - 9000);
  EXPECT_EQ(small(rest.memory[kDevice].idle), 500 * 100);
}

TEST(UsageMeterTest, ChargedCoreTimeIsThatOfIdleCores) {
  UsageMeter meter(kMachine, after_ns(0));
  const std::int32_t f = meter.add_function();
  meter.charge_cores(after_ns(100), f, 150);
  EXPECT_EQ(small(meter.of(f, after_ns(100)).core_ns), 150);
  EXPECT_EQ(small(meter.platform(after_ns(100)).core_ns), 250);
  meter.charge_cores(after_ns(100), f, 300);
  EXPECT_EQ(small(meter.of(f, after_ns(100)).core_ns), 400) << "the machine had no more";
  EXPECT_EQ(small(meter.platform(after_ns(100)).core_ns), 0);
}

TEST(UsageMeterTest, ThePlatformHasWhatAnotherMachineBrings) {
  UsageMeter meter(kMachine, after_ns(0));
  const std::int32_t f = meter.add_function();
  meter.set_bytes(after_ns(0), f, MemoryKind::kHost, 800);
  meter.set_capacity(after_ns(10), {6, {1500, 500, 0}});
  meter.set_bytes(after_ns(10), f, MemoryKind::kHost, 1200);
  meter.set_bytes(after_ns(30), f, MemoryKind::kHost, 100);
  meter.set_capacity(after_ns(30), kMachine);
  const FunctionUsage usage = meter.of(f, after_ns(40));
  const FunctionUsage rest = meter.platform(after_ns(40));
  EXPECT_EQ(small(usage.memory[kHost].idle), 800 * 10 + 1200 * 20 + 100 * 10);
  EXPECT_EQ(small(usage.memory[kHost].idle + rest.memory[kHost].idle),
            1000 * 10 + 1500 * 20 + 1000 * 10);
  EXPECT_EQ(small(rest.core_ns), 4 * 20 + 6 * 20);
}

TEST(UsageMeterTest, BackboneIsSplitOverTheFunctionsOnIt) {
  UsageMeter meter(kMachine, after_ns(0));
  const std::int32_t a = meter.add_function();
  const std::int32_t b = meter.add_function();
  const std::int32_t backbone = meter.add_share(MemoryKind::kDevice);
  meter.set_share_bytes(after_ns(0), backbone, 90);
  meter.join(after_ns(10), a, backbone);
  meter.join(after_ns(20), b, backbone);
  meter.set_active(after_ns(30), b, true);
  meter.leave(after_ns(40), a, backbone);
  EXPECT_EQ(small(meter.of(a, after_ns(100)).memory[kDevice].idle), 90 * 10 + 45 * 20);
  const FunctionUsage of_b = meter.of(b, after_ns(50));
  EXPECT_EQ(small(of_b.memory[kDevice].idle), 45 * 10);
  EXPECT_EQ(small(of_b.memory[kDevice].active), 45 * 10 + 90 * 10);
  meter.leave(after_ns(50), b, backbone);
  // Alone until 10 and from 50 on, it is the platform's.
  EXPECT_EQ(small(meter.platform(after_ns(100)).memory[kDevice].idle), 410 * 100 + 90 * 60);
}

// The same by walking through time in steps of one nanosecond, in floating point.
struct Reference {
  struct One {
    std::int64_t bytes = 0;
    std::vector<bool> joined;
    std::int32_t cores = 0;
    bool active = false;
    double active_bytes = 0;
    double idle_bytes = 0;
    double core_ns = 0;
  };
  std::vector<One> functions;
  std::vector<std::int64_t> shares;

  void step(std::int64_t ns) {
    std::vector<int> joined(shares.size());
    for (const One& one : functions) {
      for (std::size_t s = 0; s < shares.size(); ++s) joined[s] += one.joined[s] ? 1 : 0;
    }
    for (One& one : functions) {
      double bytes = static_cast<double>(one.bytes);
      for (std::size_t s = 0; s < shares.size(); ++s) {
        if (one.joined[s]) bytes += static_cast<double>(shares[s]) / joined[s];
      }
      (one.active ? one.active_bytes : one.idle_bytes) += bytes * static_cast<double>(ns);
      one.core_ns += static_cast<double>(one.cores * ns);
    }
  }
};

// One random change of meter and reference alike.
void change(SplitMix64& random, std::int64_t now, UsageMeter& meter, Reference& reference) {
  const std::size_t f = random.below(reference.functions.size());
  const std::size_t s = random.below(reference.shares.size());
  const auto function = static_cast<std::int32_t>(f);
  const auto share = static_cast<std::int32_t>(s);
  Reference::One& one = reference.functions[f];
  switch (random.below(5)) {
    case 0:
      one.bytes = static_cast<std::int64_t>(random.below(60));
      return meter.set_bytes(after_ns(now), function, MemoryKind::kHost, one.bytes);
    case 1:
      reference.shares[s] = static_cast<std::int64_t>(random.below(150));
      return meter.set_share_bytes(after_ns(now), share, reference.shares[s]);
    case 2: one.active = !one.active; return meter.set_active(after_ns(now), function, one.active);
    case 3: {
      std::int32_t used = 0;
      for (const Reference::One& other : reference.functions) used += other.cores;
      one.cores = one.cores > 0 ? 0 : std::min(4 - used, 2);
      return meter.set_cores(after_ns(now), function, one.cores);
    }
    default:
      one.joined[s] = !one.joined[s];
      return one.joined[s] ? meter.join(after_ns(now), function, share)
                           : meter.leave(after_ns(now), function, share);
  }
}

void expect_conserved(UsageMeter& meter, std::int32_t functions, std::int64_t now) {
  FunctionUsage sum = meter.platform(after_ns(now));
  for (std::int32_t f = 0; f < functions; ++f) {
    const FunctionUsage one = meter.of(f, after_ns(now));
    sum.core_ns += one.core_ns;
    for (std::size_t k = 0; k < kMemoryKinds; ++k) {
      sum.memory[k].idle += one.memory[k].active + one.memory[k].idle;
    }
  }
  // The functions may have settled shares; what that left over is the platform's.
  ASSERT_TRUE(sum.core_ns == Amount{kMachine.cores} * now);
  for (std::size_t k = 0; k < kMemoryKinds; ++k) {
    ASSERT_TRUE(sum.memory[k].idle == Amount{kMachine.bytes[k]} * now);
  }
}

TEST(UsageMeterTest, FunctionsAndPlatformAreTheWholeMachine) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    UsageMeter meter(kMachine, after_ns(0));
    Reference reference;
    const auto functions = static_cast<std::int32_t>(2 + random.below(5));
    reference.shares.assign(2, 0);
    for (std::size_t s = 0; s < 2; ++s) meter.add_share(MemoryKind::kHost);
    for (std::int32_t f = 0; f < functions; ++f) {
      meter.add_function();
      reference.functions.emplace_back().joined.assign(2, false);
    }
    std::int64_t now = 0;
    for (int i = 0; i < 100; ++i) {
      const auto step = static_cast<std::int64_t>(random.below(1000));
      now += step;
      reference.step(step);
      change(random, now, meter, reference);
      if (random.below(10) == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_conserved(meter, functions, now)) << seed;
      }
    }
    ASSERT_NO_FATAL_FAILURE(expect_conserved(meter, functions, now)) << seed;
    for (std::int32_t f = 0; f < functions; ++f) {
      const FunctionUsage usage = meter.of(f, after_ns(now));
      const Reference::One& one = reference.functions[static_cast<std::size_t>(f)];
      // A split leaves less than one byte-nanosecond each time.
      EXPECT_NEAR(static_cast<double>(usage.memory[kHost].active), one.active_bytes, 500);
      EXPECT_NEAR(static_cast<double>(usage.memory[kHost].idle), one.idle_bytes, 500);
      EXPECT_EQ(static_cast<double>(usage.core_ns), one.core_ns);
    }
  }
}

TEST(UsageMeterTest, LargeMachinesForMonthsDoNotOverflow) {
  const MachineCapacity large{256, {std::int64_t{4} << 40, std::int64_t{2} << 40, 0}};
  UsageMeter meter(large, after_ns(0));
  const std::int32_t f = meter.add_function();
  meter.set_bytes(after_ns(0), f, MemoryKind::kHost, large.bytes[0]);
  const TimePoint end{std::chrono::hours(24 * 365)};
  EXPECT_NEAR(static_cast<double>(meter.of(f, end).memory[0].idle) * 1e-9,
              static_cast<double>(large.bytes[0]) * 86400 * 365, 1e9);
}

}  // namespace
}  // namespace sluice
