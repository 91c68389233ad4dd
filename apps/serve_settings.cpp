#include "apps/serve_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apps/engine_arguments.h"
#include "apps/option_values.h"
#include "base/memory_size.h"
#include "front/reasoning_stream.h"
#include "front/tool_format.h"
#include "scheduler/policy.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxSeconds = 7 * 24 * 3600;
constexpr std::int64_t kMaxConnections = 1 << 20;
constexpr std::int64_t kMaxQueue = 1 << 20;
constexpr std::int64_t kMaxWorkers = 64;
constexpr std::int64_t kMaxFunctions = 1024;
constexpr std::int64_t kMaxWarmWorkers = 64;
constexpr std::int64_t kMaxBodyBytes = std::int64_t{1} << 30;

// These functions do not change `value` if the option was not given.
template <class T>
Status read_count(const char* option, const std::optional<std::string>& text, std::int64_t low,
                  std::int64_t high, T& value) {
  if (!text) return {};
  ASSIGN_OR_RETURN(const std::int64_t parsed, parse_integer(option, *text, low, high));
  value = static_cast<T>(parsed);
  return {};
}

Status read_seconds(const char* option, const std::optional<std::string>& text, std::int64_t low,
                    Duration& value) {
  if (!text) return {};
  ASSIGN_OR_RETURN(const std::int64_t parsed, parse_integer(option, *text, low, kMaxSeconds));
  value = std::chrono::seconds(parsed);
  return {};
}

Status read_body_size(const std::optional<std::string>& text, http::HttpLimits& limits) {
  if (!text) return {};
  ASSIGN_OR_RETURN(const std::int64_t bytes, parse_memory_size("--max-body-size", *text));
  if (bytes < 1 || bytes > kMaxBodyBytes) {
    return invalid_argument("--max-body-size must be between 1 and 1GiB");
  }
  limits.body_bytes = static_cast<std::size_t>(bytes);
  limits.total_body_bytes = std::max(limits.total_body_bytes, 4 * limits.body_bytes);
  return {};
}

// The model's name for clients: by default the name of its directory.
Result<std::string> name_of(const ServeArguments& arguments) {
  if (arguments.served_model_name) {
    if (!arguments.served_model_name->empty()) return *arguments.served_model_name;
    return invalid_argument("--served-model-name is empty; clients must be able to name the model");
  }
  std::string name = directory_name(arguments.model);
  if (name.empty()) {
    return invalid_argument(fmt::format(
        "{} gives the model no name; give one with --served-model-name", arguments.model));
  }
  return name;
}

Status check_namespace(const std::string& name) {
  const bool fits = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                    });
  if (fits) return {};
  return invalid_argument(fmt::format(
      "--metrics-namespace must be letters, digits and _, not beginning with a digit; got '{}'",
      name));
}

Status check_tool_call_parser(const std::string& name) {
  if (name == "auto" || name == "none" || find_tool_format(name) != nullptr) return {};
  std::string names = "auto, none";
  for (const ToolFormat& format : tool_formats()) names += fmt::format(", {}", format.name);
  return invalid_argument(
      fmt::format("--tool-call-parser must be one of {}; got '{}'", names, name));
}

Status check_reasoning_parser(const std::string& name) {
  if (name == "none" || find_reasoning_format(name) != nullptr) return {};
  std::string names = "none";
  for (const ReasoningFormat& format : reasoning_formats())
    names += fmt::format(", {}", format.name);
  return invalid_argument(
      fmt::format("--reasoning-parser must be one of {}; got '{}'", names, name));
}

struct GivenOption {
  const char* name;
  bool given;
};

// These need a part of the engine's process that functions do not have.
Status check_function_options(const ServeArguments& a, const EngineOptions& engine) {
  const EngineOptionTexts& texts = a.engine;
  if (engine.device == DeviceKind::kCuda) {
    return unsupported(
        "--device cuda does not go with --isolation process: the sandbox has no access to a GPU's "
        "driver yet; use --device cpu, or --isolation none");
  }
  const GivenOption refused[] = {
      {"--isa", !texts.isa.empty()},
      {"--adapter-slots", !texts.adapter_slots.empty()},
      {"--snapshot", !texts.snapshot.empty() && texts.snapshot != "off"},
      {"--restore", !texts.restore.empty()},
      {"--warm", !a.warm.files.empty()},
      {"--warm-limit", !a.warm.limit.empty()},
      {"--pin-limit", a.pin_limit.has_value()},
      {"--verify", a.verify},
      {"--kv-disk", engine.kv_disk.has_value()},
      {"--kv-ram", engine.kv_ram.has_value()},
      {"--kv-idle-release", engine.kv_idle_release > Duration{0}},
      {"--kv-pretouch", texts.kv_pretouch},
      {"--enforce-eager", texts.enforce_eager},
      {"--large-pages", !texts.large_pages.empty()},
      {"--no-enable-prefix-caching", !texts.prefix_caching},
      {"--tbt-slo-ms", !texts.tbt_slo_ms.empty()},
      {"--token-budget auto or time", needs_profile(engine.budget_mode)},
  };
  for (const GivenOption& option : refused) {
    if (!option.given) continue;
    return unsupported(fmt::format(
        "{} does not go with --isolation process; leave it out, or use --isolation none",
        option.name));
  }
  return {};
}

Result<std::optional<FunctionSettings>> read_functions(const ServeArguments& a,
                                                       EngineOptions& engine) {
  if (a.isolation == "none") {
    for (const GivenOption& option : {GivenOption{"--sandbox", a.sandbox.has_value()},
                                      GivenOption{"--max-functions", a.max_functions.has_value()},
                                      GivenOption{"--function-idle", a.function_idle.has_value()},
                                      GivenOption{"--warm-workers", a.warm_workers.has_value()},
                                      GivenOption{"--turns", a.turns.has_value()}}) {
      if (!option.given) continue;
      return invalid_argument(
          fmt::format("{} is for --isolation process only; leave it out", option.name));
    }
    return std::optional<FunctionSettings>();
  }
  if (a.isolation != "process") {
    return invalid_argument(
        fmt::format("--isolation must be none or process, got '{}'", a.isolation));
  }
  FunctionSettings functions;
  const std::string sandbox = a.sandbox.value_or("strict");
  if (sandbox != "strict" && sandbox != "best-effort") {
    return invalid_argument(
        fmt::format("--sandbox must be strict or best-effort, got '{}'", sandbox));
  }
  functions.best_effort = sandbox == "best-effort";
  RETURN_IF_ERROR(
      read_count("--max-functions", a.max_functions, 1, kMaxFunctions, functions.max_functions));
  RETURN_IF_ERROR(read_seconds("--function-idle", a.function_idle, 1, functions.idle));
  functions.warm_workers = 1;
  RETURN_IF_ERROR(
      read_count("--warm-workers", a.warm_workers, 0, kMaxWarmWorkers, functions.warm_workers));
  const std::string turns = a.turns.value_or("on");
  if (turns != "on" && turns != "off") {
    return invalid_argument(fmt::format("--turns must be on or off, got '{}'", turns));
  }
  functions.turns = turns == "on";
  RETURN_IF_ERROR(check_function_options(a, engine));
  engine.snapshot = {};
  engine.adapters.sealed = true;
  return std::optional<FunctionSettings>(functions);
}

Status add_lent_memory(const LendArguments& given, LendSettings& lend, EngineOptions& engine) {
  if (engine.device == DeviceKind::kCuda) {
    lend.gpu = engine.device_index;
    // Memory of a GPU is no part of a budget of the machine's.
    if (given.device.empty()) lend.device = fmt::format("cuda:{}", engine.device_index);
  }
  if (!lend.borrowed) return {};
  if (engine.kv_disk) {
    return invalid_argument("--borrow-pages and --kv-disk exclude each other: there is one tier");
  }
  if (engine.kv_ram) {
    return invalid_argument("--borrow-pages and --kv-ram exclude each other: there is one tier");
  }
  if (engine.prefix_caching == PrefixCaching::kOff) {
    return invalid_argument(
        "--borrow-pages needs the prefix cache, which --no-enable-prefix-caching turns off");
  }
  engine.lent_memory = lend.borrowed;
  return {};
}

// MIN-MAX is of all functions together.
Status divide_kv(const LendSettings& lend, EngineOptions& engine, FunctionSettings& functions) {
  if (lend.lend_pages > 0 || lend.borrowed) {
    return unsupported(
        "--lend-pages and --borrow-pages do not go with --isolation process; leave them out, or "
        "use --isolation none");
  }
  const KvDivision division(kv_division(lend, functions.max_functions));
  functions.kv_least = division.own();
  engine.kv_cache_least = division.own();
  engine.kv_cache_memory = division.most_of_one();
  return {};
}

}  // namespace

KvDivision::Options kv_division(const LendSettings& lend, std::int32_t max_functions) {
  return {.least = lend.least, .most = lend.most, .places = max_functions};
}

Result<ServeSettings> parse_serve_settings(const ServeArguments& a) {
  ServeSettings s;
  http::HttpLimits& limits = s.limits;
  RETURN_IF_ERROR(read_count("--port", a.port, 0, 65535, s.port));
  RETURN_IF_ERROR(read_count("--max-connections", a.max_connections, 1, kMaxConnections,
                             limits.max_connections));
  RETURN_IF_ERROR(read_count("--max-queue", a.max_queue, 1, kMaxQueue, s.queue.max_requests));
  RETURN_IF_ERROR(read_count("--workers", a.workers, 1, kMaxWorkers, s.workers));
  RETURN_IF_ERROR(read_body_size(a.max_body_size, limits));
  RETURN_IF_ERROR(read_seconds("--header-timeout", a.header_timeout, 1, limits.header_timeout));
  RETURN_IF_ERROR(read_seconds("--body-timeout", a.body_timeout, 1, limits.body_timeout));
  RETURN_IF_ERROR(read_seconds("--idle-timeout", a.idle_timeout, 1, limits.idle_timeout));
  RETURN_IF_ERROR(read_seconds("--write-timeout", a.write_timeout, 1, limits.write_timeout));
  RETURN_IF_ERROR(read_seconds("--drain-timeout", a.drain_timeout, 0, s.drain_timeout));
  RETURN_IF_ERROR(read_seconds("--stream-keep-alive", a.stream_keep_alive, 0, s.stream_keep_alive));
  RETURN_IF_ERROR(check_namespace(a.metrics_namespace));
  RETURN_IF_ERROR(check_tool_call_parser(a.parsers.tool_calls));
  RETURN_IF_ERROR(check_reasoning_parser(a.parsers.reasoning));
  ASSIGN_OR_RETURN(s.model_name, name_of(a));
  if (!a.uds.empty() && a.port) {
    return invalid_argument("--uds and --port exclude each other");
  }
  if (!a.uds.empty() && !a.ssl_certfile.empty()) {
    return invalid_argument(
        "--uds and --ssl-certfile exclude each other: only this user can open the socket");
  }
  // No page of a browser reaches a socket file, so any name may stand in front of it.
  std::vector<std::string> hosts = a.allowed_hosts;
  if (!a.uds.empty()) hosts.emplace_back("*");
  ASSIGN_OR_RETURN(s.origins, OriginPolicy::create({a.host, hosts, a.cors_origins}));
  EngineOptionTexts engine = a.engine;
  ASSIGN_OR_RETURN(s.lend, read_lend_settings(a.lend, engine.kv_cache_memory));
  ASSIGN_OR_RETURN(s.engine, parse_engine_options(engine));
  if (s.lend) {
    s.engine.kv_cache_least = s.lend->least;
    RETURN_IF_ERROR(add_lent_memory(a.lend, *s.lend, s.engine));
  }
  ASSIGN_OR_RETURN(s.functions, read_functions(a, s.engine));
  if (s.lend && s.functions) RETURN_IF_ERROR(divide_kv(*s.lend, s.engine, *s.functions));
  ASSIGN_OR_RETURN(const auto policy, make_policy(s.engine.scheduler));
  const bool budget_given = !a.engine.token_budget.empty() || s.engine.tbt_slo;
  if (!budget_given && policy->plans_by_time()) s.engine.budget_mode = BudgetMode::kFollow;
  s.engine.adapters.at_run_time = !a.adapter_dir.empty();
  for (const AdapterSettings::Source& source : s.engine.adapters.sources) {
    if (source.name != s.model_name) continue;
    return invalid_argument(
        fmt::format("--adapter {} has the name of the base model; give it another one, or change "
                    "--served-model-name",
                    source.name));
  }
  ASSIGN_OR_RETURN(s.warm, read_warm_options(a.warm, s.engine));
  if (a.pin_limit) {
    const auto share = parse_number(*a.pin_limit);
    if (!share || !(*share >= 0 && *share <= 1)) {
      return invalid_argument(
          fmt::format("--pin-limit must be between 0 and 1, got '{}'", *a.pin_limit));
    }
    s.queue.pin_share = *share;
  }
  return s;
}

}  // namespace sluice
