#include "apps/machine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

// A machine with AMX on which pairs of BF16 are half as fast as FP32.
MachineLimits sapphire_rapids() {
  MachineLimits limits;
  limits.threads = 2;
  limits.read = 29.8e9;
  limits.peaks = {461e9, 232e9, 1826e9, 913e9, 5490e9, 11060e9};
  return limits;
}

TEST(JudgeLimits, AreOkWhereTheKernelsUseTheFastestUnit) {
  const MachineCheck check = judge_limits(sapphire_rapids(), CpuIsa::kAmx);
  EXPECT_EQ(check.level, CheckLevel::kOk);
  EXPECT_TRUE(check.advice.empty());
  EXPECT_THAT(check.found, HasSubstr("2 threads: read 29.8 GB/s; fma 461"));
}

TEST(JudgeLimits, WarnWhereAnotherUnitIsFaster) {
  MachineLimits limits = sapphire_rapids();
  limits.peaks[static_cast<std::size_t>(MathUnit::kAmxBf16)] = 0;
  const MachineCheck check = judge_limits(limits, CpuIsa::kAvx512Bf16);
  EXPECT_EQ(check.level, CheckLevel::kWarning);
  EXPECT_THAT(check.advice, HasSubstr("with avx512_bf16, and fma is 2.0 times as fast"));
  EXPECT_THAT(check.advice, HasSubstr("use --isa avx512_bf16_fma"));
  EXPECT_EQ(judge_limits(limits, CpuIsa::kAvx512Bf16Fma).level, CheckLevel::kOk);
  EXPECT_EQ(judge_limits(limits, CpuIsa::kAvx2).level, CheckLevel::kOk);
  EXPECT_EQ(judge_limits(limits, CpuIsa::kAvx2Vnni).level, CheckLevel::kOk);
}

TEST(JudgeLimits, DoNotWarnOfNoise) {
  MachineLimits limits = sapphire_rapids();
  limits.peaks = {240e9, 232e9, 0, 0, 0, 0};
  EXPECT_EQ(judge_limits(limits, CpuIsa::kAvx512Bf16).level, CheckLevel::kOk);
}

TEST(JudgeLimits, DoNotJudgeTheReference) {
  EXPECT_EQ(judge_limits(sapphire_rapids(), CpuIsa::kReference).level, CheckLevel::kOk);
}

TEST(JudgeSharedPages, NamesTheSettingWhereTheSystemGivesNone) {
  EXPECT_EQ(judge_shared_pages("advise").level, CheckLevel::kOk);
  const MachineCheck never = judge_shared_pages("never");
  EXPECT_EQ(never.level, CheckLevel::kNote);
  EXPECT_THAT(never.advice, HasSubstr("echo advise > /sys/kernel/mm/transparent_hugepage/shmem"));
  EXPECT_THAT(judge_shared_pages("").found, HasSubstr("no large pages"));
  EXPECT_TRUE(judge_shared_pages("").advice.empty());
}

TEST(JudgeThreads, AdvisesAThreadForEachCpuOnlyWhereThatReadsFaster) {
  const MachineLimits cores = sapphire_rapids();
  MachineLimits cpus = cores;
  cpus.threads = 4;
  MachineCheck check;
  judge_threads(cores, cpus, CpuIsa::kAmx, check);
  EXPECT_EQ(check.level, CheckLevel::kOk);
  EXPECT_THAT(check.found, HasSubstr("each of 4 CPUs reads 1.00 and computes 1.00 times"));
  EXPECT_TRUE(check.advice.empty());

  cpus.read = 1.3 * cores.read;
  judge_threads(cores, cpus, CpuIsa::kAmx, check);
  EXPECT_EQ(check.level, CheckLevel::kNote);
  EXPECT_THAT(check.advice, HasSubstr("--threads 4"));

  check = {};
  cpus.peaks[static_cast<std::size_t>(MathUnit::kAmxBf16)] /= 2;
  judge_threads(cores, cpus, CpuIsa::kAmx, check);
  EXPECT_TRUE(check.advice.empty());
}

}  // namespace
}  // namespace sluice
