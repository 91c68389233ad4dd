#include "engine/engine_options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "scheduler/policy.h"

namespace sluice {
namespace {

// Not built: each is named with what works instead.
Status refuse_unbuilt(const EngineOptionTexts& texts) {
  if (!texts.tbt_slo_ms.empty()) {
    return unsupported("--tbt-slo-ms is not built yet; set --token-budget to a number instead");
  }
  if (texts.token_budget == "auto" || texts.token_budget == "time") {
    return unsupported(
        fmt::format("--token-budget {} is not built yet; give a number of tokens per step",
                    texts.token_budget));
  }
  if (!texts.adapters.empty()) {
    return unsupported(
        fmt::format("--adapter {} is refused: adapters are not built yet", texts.adapters.front()));
  }
  if (!texts.snapshot.empty()) {
    return unsupported(
        fmt::format("--snapshot {} is refused: snapshots are not built yet", texts.snapshot));
  }
  return {};
}

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

Status parse_dtype(const std::string& text, EngineOptions& options) {
  if (text.empty() || text == "auto") return {};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (text != dtype_name(dtype)) continue;
    options.dtype = dtype;
    return {};
  }
  if (text == "int8" || text == "int4" || text == "fp8") {
    return unsupported(
        fmt::format("--dtype {} is not built yet; use auto, bf16, f16 or f32", text));
  }
  return invalid_argument(fmt::format("--dtype must be auto, bf16, f16 or f32, got '{}'", text));
}

Status parse_scheduler(const std::string& text, EngineOptions& options) {
  if (text.empty()) return {};
  auto policy = make_policy(text);
  if (!policy) return with_context("--scheduler", std::move(policy).error());
  options.scheduler = text;
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

}  // namespace

Result<std::int64_t> parse_integer(std::string_view option, std::string_view text, std::int64_t low,
                                   std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= low && value <= high) return value;
  return invalid_argument(fmt::format("{} must be a whole number between {} and {}, got '{}'",
                                      option, low, high, text));
}

Result<std::int64_t> parse_memory_size(std::string_view option, std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KiB", 0x1p10},
                                            {"MiB", 0x1p20},
                                            {"GiB", 0x1p30},
                                            {"TiB", 0x1p40},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12}}};
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error == std::errc()) {
    const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
    for (const Unit& unit : kUnits) {
      const double bytes = number * unit.bytes;
      if (suffix == unit.name && bytes >= 1 && bytes < 0x1p62) {
        return static_cast<std::int64_t>(bytes);
      }
    }
  }
  return invalid_argument(
      fmt::format("{} must be a size such as 4GiB, 512MiB or 2GB, got '{}'", option, text));
}

Result<EngineOptions> parse_engine_options(const EngineOptionTexts& texts) {
  EngineOptions options;
  RETURN_IF_ERROR(refuse_unbuilt(texts));
  RETURN_IF_ERROR(parse_device(texts.device, options));
  RETURN_IF_ERROR(parse_dtype(texts.dtype, options));
  RETURN_IF_ERROR(parse_scheduler(texts.scheduler, options));
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  RETURN_IF_ERROR(
      parse_optional("--token-budget", texts.token_budget, 1, 1 << 16, options.token_budget));
  RETURN_IF_ERROR(
      parse_optional("--max-num-seqs", texts.max_num_seqs, 1, 1 << 12, options.max_num_seqs));
  RETURN_IF_ERROR(
      parse_optional("--max-model-len", texts.max_model_len, 2, kLargest, options.max_model_len));
  RETURN_IF_ERROR(parse_optional("--block-size", texts.block_size, 1, 1024, options.block_size));
  RETURN_IF_ERROR(parse_optional("--threads", texts.threads, 1, 1024, options.threads));
  if (!texts.kv_cache_memory.empty()) {
    ASSIGN_OR_RETURN(options.kv_cache_memory,
                     parse_memory_size("--kv-cache-memory", texts.kv_cache_memory));
  }
  return options;
}

}  // namespace sluice
