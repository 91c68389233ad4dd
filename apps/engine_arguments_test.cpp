#include "apps/engine_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;

TEST(EngineArgumentsTest, DefaultsAreThoseOfTheDesign) {
  const auto options = parse_engine_options({});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->device, DeviceKind::kCpu);
  EXPECT_FALSE(options->dtype);
  EXPECT_EQ(options->scheduler, "stall-free");
  EXPECT_EQ(options->token_budget, 512);
  EXPECT_EQ(options->max_num_seqs, 64);
  EXPECT_FALSE(options->max_model_len);
  EXPECT_EQ(options->block_size, 16);
  EXPECT_FALSE(options->kv_cache_memory);
  EXPECT_EQ(options->threads, 0);
  EXPECT_EQ(options->load_format, LoadFormat::kAuto);
  EXPECT_EQ(options->graphs, GraphMode::kReplay);
}

TEST(EngineArgumentsTest, ReadsEveryOption) {
  EngineOptionTexts texts;
  texts.device = "cuda:3";
  texts.dtype = "bf16";
  texts.scheduler = "hybrid:max-tokens";
  texts.token_budget = "256";
  texts.max_num_seqs = "8";
  texts.max_model_len = "4096";
  texts.block_size = "32";
  texts.kv_cache_memory = "4GiB";
  texts.kv_idle_release = "0.5";
  texts.kv_pretouch = true;
  texts.threads = "2";
  const auto options = parse_engine_options(texts);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->device, DeviceKind::kCuda);
  EXPECT_EQ(options->device_index, 3);
  EXPECT_EQ(options->dtype, DType::kBF16);
  EXPECT_EQ(options->scheduler, "hybrid:max-tokens");
  EXPECT_EQ(options->token_budget, 256);
  EXPECT_EQ(options->max_num_seqs, 8);
  EXPECT_EQ(options->max_model_len, 4096);
  EXPECT_EQ(options->block_size, 32);
  EXPECT_EQ(options->kv_cache_memory, std::int64_t{4} << 30);
  EXPECT_EQ(options->kv_idle_release, std::chrono::milliseconds(500));
  EXPECT_EQ(options->kv_backing, KvBacking::kTouched);
  EXPECT_EQ(options->threads, 2);
  EXPECT_TRUE(options->large_pages);
  texts.load_format = "dummy";
  texts.large_pages = "off";
  texts.enforce_eager = true;
  texts.deterministic = true;
  const auto others = parse_engine_options(texts);
  ASSERT_TRUE(others) << others.error().message;
  EXPECT_EQ(others->load_format, LoadFormat::kDummy);
  EXPECT_FALSE(others->large_pages);
  EXPECT_EQ(others->graphs, GraphMode::kEager);
  EXPECT_TRUE(others->deterministic);
  EXPECT_FALSE(options->deterministic);
}

TEST(EngineArgumentsTest, SnapshotsAreAutomaticUnlessTurnedOffOrNamed) {
  const auto choice = [](const std::string& text) {
    EngineOptionTexts texts;
    texts.snapshot = text;
    return parse_engine_options(texts)->snapshot;
  };
  EXPECT_EQ(choice("").mode, SnapshotMode::kAuto);
  EXPECT_EQ(choice("auto").mode, SnapshotMode::kAuto);
  EXPECT_EQ(choice("off").mode, SnapshotMode::kOff);
  EXPECT_EQ(choice("a/file").mode, SnapshotMode::kFile);
  EXPECT_EQ(choice("a/file").path, "a/file");
}

TEST(EngineArgumentsTest, RestoreIsAutomaticUnlessForced) {
  EngineOptionTexts texts;
  EXPECT_EQ(parse_engine_options(texts)->snapshot.restore, RestoreMode::kAutomatic);
  texts.restore = "layout";
  EXPECT_EQ(parse_engine_options(texts)->snapshot.restore, RestoreMode::kLayout);
  texts.restore = "relocate";
  EXPECT_EQ(parse_engine_options(texts)->snapshot.restore, RestoreMode::kRelocate);
  texts.snapshot = "off";
  EXPECT_THAT(parse_engine_options(texts).error().message, testing::HasSubstr("--snapshot off"));
  texts.snapshot = "";
  texts.restore = "fast";
  EXPECT_THAT(parse_engine_options(texts).error().message,
              testing::HasSubstr("--restore must be layout or relocate, got 'fast'"));
}

TEST(EngineArgumentsTest, WrongValuesNameTheOptionAndTheRange) {
  const auto wrong = [](auto set, const char* name) {
    EngineOptionTexts texts;
    set(texts);
    const auto options = parse_engine_options(texts);
    ASSERT_FALSE(options) << name;
    EXPECT_EQ(options.error().code, ErrorCode::kInvalidArgument) << name;
    EXPECT_THAT(options.error().message, HasSubstr(name));
  };
  wrong([](auto& t) { t.device = "gpu"; }, "--device");
  wrong([](auto& t) { t.device = "cuda:x"; }, "--device");
  wrong([](auto& t) { t.isa = "sse2"; }, "--isa: unknown instruction set 'sse2'");
  wrong(
      [](auto& t) {
        t.device = "cuda";
        t.isa = "avx2";
      },
      "--isa");
  wrong([](auto& t) { t.dtype = "f64"; }, "--dtype");
  wrong([](auto& t) { t.load_format = "gguf"; }, "--load-format");
  wrong([](auto& t) { t.scheduler = "magic"; }, "--scheduler");
  wrong([](auto& t) { t.token_budget = "0"; }, "--token-budget");
  wrong([](auto& t) { t.token_budget = "1.5"; }, "--token-budget");
  wrong(
      [](auto& t) {
        t.token_budget = "follow";
        t.scheduler = "prefill-first";
      },
      "--token-budget follow");
  wrong([](auto& t) { t.max_num_seqs = "-1"; }, "--max-num-seqs");
  wrong([](auto& t) { t.max_num_seqs = "99999999999999999999"; }, "--max-num-seqs");
  wrong([](auto& t) { t.max_model_len = "1"; }, "--max-model-len");
  wrong([](auto& t) { t.block_size = "16x"; }, "--block-size");
  wrong([](auto& t) { t.threads = "0"; }, "--threads");
  wrong([](auto& t) { t.kv_cache_memory = "lots"; }, "--kv-cache-memory");
  for (const char* share : {"0", "1.01", "-0.5", "90%", "nan"}) {
    wrong(
        [&](auto& t) {
          t.device = "cuda";
          t.gpu_memory_utilization = share;
        },
        "--gpu-memory-utilization must be above 0");
  }
  wrong([](auto& t) { t.gpu_memory_utilization = "0.9"; }, "--kv-cache-memory SIZE on the CPU");
  wrong(
      [](auto& t) {
        t.device = "cuda";
        t.gpu_memory_utilization = "0.9";
        t.kv_cache_memory = "1GiB";
      },
      "leave one out");
  wrong([](auto& t) { t.kv_disk_key = "key"; }, "--kv-disk-key");
  wrong([](auto& t) { t.kv_ram = "much"; }, "--kv-ram");
  wrong(
      [](auto& t) {
        t.kv_ram = "1GiB";
        t.prefix_caching = false;
      },
      "--kv-ram needs the prefix cache");
  wrong([](auto& t) { t.kv_idle_release = "soon"; }, "--kv-idle-release");
  wrong([](auto& t) { t.kv_idle_release = "-1"; }, "--kv-idle-release");
}

TEST(EngineArgumentsTest, AShareOfTheGpusMemory) {
  EngineOptionTexts texts;
  texts.device = "cuda";
  texts.gpu_memory_utilization = "0.9";
  const auto options = parse_engine_options(texts);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->gpu_memory_share, 0.9);
  EXPECT_FALSE(options->kv_cache_memory);
}

TEST(EngineArgumentsTest, TheTokenBudgetHasOneSource) {
  const auto parse = [](const char* budget, const char* slo, const char* scheduler = "") {
    EngineOptionTexts texts;
    texts.token_budget = budget;
    texts.tbt_slo_ms = slo;
    texts.scheduler = scheduler;
    return parse_engine_options(texts);
  };
  EXPECT_EQ(parse("300", "")->budget_mode, BudgetMode::kTokens);
  EXPECT_EQ(parse("", "")->budget_mode, BudgetMode::kTokens);
  const auto by_goal = parse("", "12.5");
  ASSERT_TRUE(by_goal);
  EXPECT_EQ(by_goal->budget_mode, BudgetMode::kAuto);
  EXPECT_EQ(by_goal->tbt_slo, std::chrono::microseconds(12500));
  EXPECT_EQ(parse("auto", "50")->budget_mode, BudgetMode::kAuto);
  EXPECT_FALSE(parse("auto", "")->tbt_slo);
  EXPECT_EQ(parse("time", "50")->budget_mode, BudgetMode::kTime);
  EXPECT_TRUE(parse("time", "", "vtc"));
  const auto refused = [&](const auto& options, const char* what) {
    ASSERT_FALSE(options) << what;
    EXPECT_EQ(options.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(options.error().message, HasSubstr(what));
  };
  refused(parse("256", "50"), "--token-budget 256");
  refused(parse("sometimes", ""), "auto, time or a whole number");
  for (const char* slo : {"0", "-1", "soon", "5ms", "nan", "inf", "1e3", "99999999999"}) {
    refused(parse("auto", slo), "--tbt-slo-ms");
  }
  for (const char* scheduler : {"unified", "chunked-only", "hybrid", "prefill-first"}) {
    refused(parse("time", "50", scheduler), scheduler);
    EXPECT_TRUE(parse("auto", "50", scheduler));
  }
}

TEST(EngineArguments, VllmsNamesOfNumberFormatsMeanTheSame) {
  const auto dtype_of = [](const char* name) {
    EngineOptionTexts texts;
    texts.dtype = name;
    return parse_engine_options(texts)->dtype;
  };
  EXPECT_EQ(dtype_of("bfloat16"), DType::kBF16);
  EXPECT_EQ(dtype_of("float16"), DType::kF16);
  EXPECT_EQ(dtype_of("half"), DType::kF16);
  EXPECT_EQ(dtype_of("float32"), DType::kF32);
  EXPECT_EQ(dtype_of("int8"), DType::kI8);
  EXPECT_EQ(dtype_of("int4"), DType::kI4);
  EXPECT_EQ(dtype_of("float"), DType::kF32);
}

TEST(EngineArguments, ThePrefixCacheCanBeTurnedOff) {
  EngineOptionTexts texts;
  EXPECT_EQ(parse_engine_options(texts)->prefix_caching, PrefixCaching::kOn);
  texts.prefix_caching = false;
  EXPECT_EQ(parse_engine_options(texts)->prefix_caching, PrefixCaching::kOff);
}

}  // namespace
}  // namespace sluice
