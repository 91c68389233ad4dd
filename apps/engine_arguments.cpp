#include "apps/engine_arguments.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <utility>

#include "adapter/adapter_store.h"
#include "apps/kv_disk.h"
#include "apps/open_snapshot.h"
#include "apps/option_values.h"
#include "base/memory_size.h"
#include "device/cpu/cpu_isa.h"
#include "scheduler/policy.h"

namespace sluice {
namespace {

Status parse_device(const std::string& text, EngineOptions& options) {
  if (text.empty() || text == "cpu") return {};
  constexpr std::string_view kCuda = "cuda";
  if (text.rfind(kCuda, 0) == 0 && (text.size() == kCuda.size() || text[kCuda.size()] == ':')) {
    options.device = DeviceKind::kCuda;
    if (text.size() == kCuda.size()) return {};
    ASSIGN_OR_RETURN(const std::int64_t index,
                     parse_integer("--device cuda:N", text.substr(kCuda.size() + 1), 0, 1023));
    options.device_index = static_cast<std::int32_t>(index);
    return {};
  }
  return invalid_argument(fmt::format("--device must be cpu or cuda:N, got '{}'", text));
}

Status parse_isa(const std::string& text, EngineOptions& options) {
  if (text.empty()) return {};
  if (options.device != DeviceKind::kCpu) {
    return invalid_argument("--isa chooses kernels of the CPU: leave it out, or use --device cpu");
  }
  const auto isa = parse_cpu_isa(text);
  if (!isa) return invalid_argument("--isa: " + isa.error().message);
  options.isa = text;
  return {};
}

// vLLM's names of the number formats.
std::string_view short_dtype(std::string_view text) {
  if (text == "bfloat16") return "bf16";
  if (text == "float16" || text == "half") return "f16";
  if (text == "float32" || text == "float") return "f32";
  return text;
}

Status parse_dtype(std::string_view given, EngineOptions& options) {
  const std::string_view text = short_dtype(given);
  if (text.empty() || text == "auto") return {};
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kI4}) {
    if (text != dtype_name(dtype)) continue;
    options.dtype = dtype;
    return {};
  }
  return invalid_argument(
      fmt::format("--dtype must be auto, bf16, f16, f32, fp8, int8 or int4, got '{}'", text));
}

Status parse_load_format(const std::string& text, EngineOptions& options) {
  if (text.empty() || text == "auto") return {};
  if (text == "dummy") {
    options.load_format = LoadFormat::kDummy;
    return {};
  }
  return invalid_argument(fmt::format("--load-format must be auto or dummy, got '{}'", text));
}

Status parse_large_pages(const std::string& text, EngineOptions& options) {
  options.large_pages = text != "off";
  if (text.empty() || text == "auto" || text == "off") return {};
  return invalid_argument(fmt::format("--large-pages must be auto or off, got '{}'", text));
}

Status parse_scheduler(const std::string& text, EngineOptions& options) {
  if (text.empty()) return {};
  auto policy = make_policy(text);
  if (!policy) return with_context("--scheduler", std::move(policy).error());
  options.scheduler = text;
  return {};
}

Result<Duration> parse_slo(const std::string& text) {
  double ms = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ms, std::chars_format::fixed);
  // Up to a day; no step is shorter than a microsecond.
  if (error == std::errc() && stop == end && ms >= 0.001 && ms <= 86'400'000) {
    return Duration(static_cast<Duration::rep>(ms * 1e6));
  }
  return invalid_argument(fmt::format(
      "--tbt-slo-ms must be milliseconds between two tokens, such as 100, got '{}'", text));
}

// Fractions are for tests; up to a year.
Result<Duration> parse_idle_release(const std::string& text) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  if (error == std::errc() && stop == end && seconds >= 0 && seconds <= 31'536'000) {
    return Duration(static_cast<Duration::rep>(seconds * 1e9));
  }
  return invalid_argument(fmt::format(
      "--kv-idle-release must be seconds without a request, such as 60, or 0 for never, got '{}'",
      text));
}

Status parse_plans_by_time(std::string_view budget, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const auto policy, make_policy(options.scheduler));
  if (policy->plans_by_time()) return {};
  return invalid_argument(fmt::format(
      "--token-budget {} does not go with --scheduler {}, which does not plan chunks behind all "
      "decodes; use stall-free, vtc or fair, or --token-budget auto",
      budget, options.scheduler));
}

// A number, `auto` or `time`; a goal alone means auto. REQUIRES: the scheduler is known.
Status parse_budget(const EngineOptionTexts& texts, EngineOptions& options) {
  const std::string& text = texts.token_budget;
  if (!texts.tbt_slo_ms.empty()) {
    ASSIGN_OR_RETURN(options.tbt_slo, parse_slo(texts.tbt_slo_ms));
  }
  if (text == "auto" || (text.empty() && options.tbt_slo)) {
    options.budget_mode = BudgetMode::kAuto;
    return {};
  }
  if (text == "time") {
    options.budget_mode = BudgetMode::kTime;
    return parse_plans_by_time("time", options);
  }
  if (text == "follow" && !options.tbt_slo) {
    options.budget_mode = BudgetMode::kFollow;
    return parse_plans_by_time("follow", options);
  }
  if (options.tbt_slo) {
    return invalid_argument(fmt::format(
        "--tbt-slo-ms chooses the token budget, and --token-budget {} gives one; leave one of them "
        "out, or use --token-budget auto or time",
        text));
  }
  if (text.empty()) return {};
  auto parsed = parse_integer("--token-budget", text, 1, 1 << 16);
  if (!parsed) {
    return invalid_argument(fmt::format(
        "--token-budget must be follow, auto, time or a whole number between 1 and {}, got '{}'",
        1 << 16, text));
  }
  options.token_budget = static_cast<std::int32_t>(*parsed);
  return {};
}

// Leaves `value` alone when the option was not given.
template <class T>
Status parse_optional(std::string_view option, const std::string& text, std::int64_t low,
                      std::int64_t high, T& value) {
  if (text.empty()) return {};
  ASSIGN_OR_RETURN(const std::int64_t parsed, parse_integer(option, text, low, high));
  value = static_cast<std::int32_t>(parsed);
  return {};
}

Status parse_restore(const std::string& text, SnapshotChoice& choice) {
  if (text.empty()) return {};
  if (choice.mode == SnapshotMode::kOff) {
    return invalid_argument(
        "--restore says how graphs of a snapshot are placed; leave it out with --snapshot off");
  }
  if (text == "layout") {
    choice.restore = RestoreMode::kLayout;
  } else if (text == "relocate") {
    choice.restore = RestoreMode::kRelocate;
  } else {
    return invalid_argument(fmt::format("--restore must be layout or relocate, got '{}'", text));
  }
  return {};
}

Status parse_adapters(const EngineOptionTexts& texts, AdapterSettings& settings) {
  for (const std::string& text : texts.adapters) {
    ASSIGN_OR_RETURN(auto named, parse_adapter_option(text));
    settings.sources.push_back({std::move(named.first), std::move(named.second)});
  }
  RETURN_IF_ERROR(
      parse_optional("--adapter-slots,--max-loras", texts.adapter_slots, 1, 4096, settings.slots));
  return parse_optional("--max-lora-rank", texts.max_lora_rank, 1, LoraTable::kMaxRank,
                        settings.max_rank);
}

Status parse_memory_share(const EngineOptionTexts& texts, EngineOptions& options) {
  const std::string& text = texts.gpu_memory_utilization;
  if (text.empty()) return {};
  const auto share = parse_number(text);
  if (!share || !(*share > 0 && *share <= 1)) {
    return invalid_argument(
        fmt::format("--gpu-memory-utilization must be above 0 and at most 1, got '{}'", text));
  }
  if (options.device == DeviceKind::kCpu) {
    return invalid_argument(
        "--gpu-memory-utilization is a share of a GPU's memory: use --kv-cache-memory SIZE on the "
        "CPU");
  }
  if (options.kv_cache_memory) {
    return invalid_argument(
        "--gpu-memory-utilization and --kv-cache-memory both set the KV memory: leave one out");
  }
  options.gpu_memory_share = share;
  return {};
}

Status parse_kv_ram(const EngineOptionTexts& texts, EngineOptions& options) {
  if (texts.kv_ram.empty()) return {};
  ASSIGN_OR_RETURN(options.kv_ram, parse_memory_size("--kv-ram", texts.kv_ram));
  if (!texts.prefix_caching) {
    return invalid_argument(
        "--kv-ram needs the prefix cache, which --no-enable-prefix-caching turns off");
  }
  return {};
}

}  // namespace

Result<EngineOptions> parse_engine_options(const EngineOptionTexts& texts) {
  EngineOptions options;
  RETURN_IF_ERROR(parse_device(texts.device, options));
  RETURN_IF_ERROR(parse_isa(texts.isa, options));
  RETURN_IF_ERROR(parse_dtype(texts.dtype, options));
  RETURN_IF_ERROR(parse_load_format(texts.load_format, options));
  RETURN_IF_ERROR(parse_large_pages(texts.large_pages, options));
  if (texts.enforce_eager) options.graphs = GraphMode::kEager;
  options.deterministic = texts.deterministic;
  options.snapshot = parse_snapshot_choice(texts.snapshot);
  RETURN_IF_ERROR(parse_restore(texts.restore, options.snapshot));
  options.prefix_caching = texts.prefix_caching ? PrefixCaching::kOn : PrefixCaching::kOff;
  RETURN_IF_ERROR(parse_scheduler(texts.scheduler, options));
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  RETURN_IF_ERROR(parse_budget(texts, options));
  RETURN_IF_ERROR(
      parse_optional("--max-num-seqs", texts.max_num_seqs, 1, 1 << 12, options.max_num_seqs));
  RETURN_IF_ERROR(
      parse_optional("--max-model-len", texts.max_model_len, 2, kLargest, options.max_model_len));
  RETURN_IF_ERROR(parse_optional("--block-size", texts.block_size, 1, 1024, options.block_size));
  if (texts.threads != "auto") {
    RETURN_IF_ERROR(parse_optional("--threads", texts.threads, 1, 1024, options.threads));
  }
  RETURN_IF_ERROR(parse_adapters(texts, options.adapters));
  if (!texts.kv_cache_memory.empty()) {
    ASSIGN_OR_RETURN(options.kv_cache_memory,
                     parse_memory_size("--kv-cache-memory", texts.kv_cache_memory));
  }
  RETURN_IF_ERROR(parse_memory_share(texts, options));
  if (!texts.kv_disk.empty()) {
    ASSIGN_OR_RETURN(options.kv_disk, parse_kv_disk(texts.kv_disk));
    options.kv_disk->key_file = texts.kv_disk_key;
    if (!texts.prefix_caching) {
      return invalid_argument(
          "--kv-disk needs the prefix cache, which --no-enable-prefix-caching "
          "turns off");
    }
  }
  if (texts.kv_disk.empty() && !texts.kv_disk_key.empty()) {
    return invalid_argument("--kv-disk-key encrypts the folder of --kv-disk, which is not given");
  }
  RETURN_IF_ERROR(parse_kv_ram(texts, options));
  if (!texts.kv_idle_release.empty()) {
    ASSIGN_OR_RETURN(options.kv_idle_release, parse_idle_release(texts.kv_idle_release));
  }
  if (texts.kv_pretouch) options.kv_backing = KvBacking::kTouched;
  return options;
}

}  // namespace sluice
