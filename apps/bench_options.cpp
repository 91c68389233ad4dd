#include "apps/bench_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>
#include <limits>
#include <string_view>

#include "apps/option_values.h"
#include "base/ascii.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "http/message_grammar.h"
#include "http/open_files.h"

namespace sluice {
namespace {

constexpr double kMostMilliseconds = 1e9;

// ---------------------------------------------------------------- the server

Result<http::Header> parse_header(const std::string& text) {
  const std::size_t at = text.find_first_of("=:");
  const std::string_view name = std::string_view(text).substr(0, at);
  if (at == std::string::npos || !http::is_token(name)) {
    return invalid_argument(fmt::format("--header '{}': write NAME=VALUE", text));
  }
  const std::string_view value = ascii::trimmed(std::string_view(text).substr(at + 1));
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f;
  });
  if (!plain) {
    return invalid_argument(fmt::format("--header {}: the value has control characters", name));
  }
  for (const std::string_view own : {"host", "content-length", "transfer-encoding", "connection"}) {
    if (ascii::equals_ignoring_case(name, own)) {
      return invalid_argument(fmt::format("--header {}: this one is the generator's own", name));
    }
  }
  return http::Header{std::string(name), std::string(value)};
}

Result<http::HttpClientOptions> client_options(const BenchArguments& arguments) {
  http::HttpClientOptions options;
  auto url = http::parse_base_url(arguments.base_url);
  if (!url) return with_context("--base-url", std::move(url).error());
  options.url = *std::move(url);
  // OpenSSL writes to sockets that the server may have closed.
  if (options.url.tls) signal(SIGPIPE, SIG_IGN);
  if (!arguments.api_key.empty()) {
    ASSIGN_OR_RETURN(auto key, parse_header("Authorization=Bearer " + arguments.api_key));
    options.headers.push_back(std::move(key));
  }
  for (const std::string& text : arguments.headers) {
    ASSIGN_OR_RETURN(auto header, parse_header(text));
    options.headers.push_back(std::move(header));
  }
  options.silence_timeout = from_seconds(arguments.request_timeout);
  options.silence_option = "--request-timeout";
  return options;
}

// ---------------------------------------------------------------- the requests

Status set_trace(const BenchArguments& arguments, WorkloadSpec& spec) {
  spec.trace = arguments.trace;
  spec.trace_options.rate_scale = arguments.rate_scale;
  spec.trace_options.length_scale = arguments.length_scale;
  const std::string& too_long = arguments.too_long;
  if (too_long != "refuse" && too_long != "shorten" && too_long != "skip") {
    return invalid_argument(
        fmt::format("--too-long '{}': there are refuse, shorten and skip", too_long));
  }
  spec.trace_options.too_long = too_long == "shorten" ? TooLong::kShorten
                                : too_long == "skip"  ? TooLong::kSkip
                                                      : TooLong::kRefuse;
  const bool other = !arguments.lengths.empty() || arguments.input_len || arguments.output_len ||
                     arguments.request_rate != "inf" || !arguments.ramp_up.empty();
  if (!spec.trace.empty() && other) {
    return invalid_argument(
        "--trace has lengths and times of its own; leave out --lengths, --random-*-len, "
        "--request-rate and --ramp-up-strategy (--rate-scale and --length-scale change them)");
  }
  return {};
}

Status set_ramp_up(const BenchArguments& arguments, WorkloadSpec& spec) {
  if (arguments.ramp_up.empty()) {
    if (!arguments.ramp_up_start && !arguments.ramp_up_end) return {};
    return invalid_argument("--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy");
  }
  if (arguments.ramp_up != "linear" && arguments.ramp_up != "exponential") {
    return invalid_argument(fmt::format("--ramp-up-strategy '{}': there are linear and exponential",
                                        arguments.ramp_up));
  }
  if (arguments.request_rate != "inf") {
    return invalid_argument("--ramp-up-strategy and --request-rate exclude each other");
  }
  spec.ramp_start = arguments.ramp_up_start.value_or(0);
  spec.ramp_end = arguments.ramp_up_end.value_or(0);
  if (!(spec.ramp_start > 0) || !(spec.ramp_end > 0)) {
    return invalid_argument(
        "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps above 0");
  }
  spec.ramp_up = arguments.ramp_up == "linear" ? RampUp::kLinear : RampUp::kExponential;
  return {};
}

Result<WorkloadSpec> workload_of(const BenchArguments& arguments) {
  WorkloadSpec spec;
  RETURN_IF_ERROR(set_trace(arguments, spec));
  RETURN_IF_ERROR(set_ramp_up(arguments, spec));
  ASSIGN_OR_RETURN(spec.lengths, lengths_option(arguments));
  spec.count = arguments.num_prompts.value_or(0);
  spec.burstiness = arguments.burstiness;
  spec.seed = arguments.seed;
  const auto rate = arguments.request_rate == "inf" ? std::numeric_limits<double>::infinity()
                                                    : parse_number(arguments.request_rate);
  if (!rate || !(*rate > 0)) {
    return invalid_argument(fmt::format(
        "--request-rate '{}': write requests per second above 0, or inf", arguments.request_rate));
  }
  spec.rate = *rate;
  return spec;
}

// ---------------------------------------------------------------- the output

Result<Goodput> goodput_of(const std::vector<std::string>& objectives) {
  Goodput goodput;
  for (const std::string& text : objectives) {
    const std::size_t colon = text.find(':');
    const std::string name = text.substr(0, colon);
    const std::string_view digits =
        colon == std::string::npos ? std::string_view() : std::string_view(text).substr(colon + 1);
    const double value = parse_number(digits).value_or(0);
    auto* limit = name == "ttft"   ? &goodput.ttft
                  : name == "tpot" ? &goodput.tpot
                  : name == "e2el" ? &goodput.e2el
                                   : nullptr;
    if (limit == nullptr || !(value > 0 && value <= kMostMilliseconds)) {
      return invalid_argument(fmt::format(
          "--goodput '{}': write ttft:MS, tpot:MS or e2el:MS with milliseconds above 0", text));
    }
    *limit = from_seconds(value / 1000);
  }
  return goodput;
}

Result<std::vector<std::string>> metrics_of(const std::string& list) {
  std::vector<std::string> metrics = split_list(list);
  for (const std::string& name : metrics) {
    if (name != "ttft" && name != "tpot" && name != "itl" && name != "e2el") {
      return invalid_argument(
          fmt::format("--percentile-metrics '{}': there are ttft, tpot, itl and e2el", name));
    }
  }
  return metrics;
}

Status check_outputs(const BenchArguments& arguments) {
  if (!arguments.save_result && (!arguments.result_dir.empty() ||
                                 !arguments.result_filename.empty() || arguments.save_detailed)) {
    return invalid_argument(
        "--result-dir, --result-filename and --save-detailed need --save-result");
  }
  return {};
}

Result<RequestForm> form_of(const BenchArguments& arguments) {
  RequestForm form;
  if (arguments.endpoint == endpoint_path(LoadEndpoint::kChat)) {
    form.endpoint = LoadEndpoint::kChat;
  } else if (arguments.endpoint != endpoint_path(LoadEndpoint::kCompletions)) {
    return invalid_argument(fmt::format(
        "--endpoint '{}': there are /v1/completions and /v1/chat/completions", arguments.endpoint));
  }
  form.temperature = arguments.temperature;
  form.ignore_eos = arguments.ignore_eos;
  return form;
}

}  // namespace

Result<std::string> lengths_option(const BenchArguments& arguments) {
  if (!arguments.input_len && !arguments.output_len) {
    return arguments.lengths.empty() ? WorkloadSpec().lengths : arguments.lengths;
  }
  if (!arguments.lengths.empty()) {
    return invalid_argument(
        "--lengths and --random-input-len, --random-output-len exclude each other");
  }
  return fmt::format("fixed:{},{}", arguments.input_len.value_or(1024),
                     arguments.output_len.value_or(128));
}

Result<BenchPlan> make_bench_plan(const BenchArguments& arguments) {
  http::raise_open_files_limit();  // each request in flight is a connection
  BenchPlan plan;
  ASSIGN_OR_RETURN(plan.load.client, client_options(arguments));
  ASSIGN_OR_RETURN(plan.load.form, form_of(arguments));
  ASSIGN_OR_RETURN(plan.workload, workload_of(arguments));
  ASSIGN_OR_RETURN(plan.load.goodput, goodput_of(arguments.goodput));
  ASSIGN_OR_RETURN(plan.percentiles, parse_percentiles(arguments.metric_percentiles));
  ASSIGN_OR_RETURN(plan.metrics, metrics_of(arguments.percentile_metrics));
  RETURN_IF_ERROR(check_outputs(arguments));
  plan.load.max_concurrency = arguments.max_concurrency.value_or(0);
  plan.load.closed_loop = plan.load.max_concurrency > 0 && plan.workload.trace.empty() &&
                          plan.workload.ramp_up == RampUp::kNone && std::isinf(plan.workload.rate);
  plan.load.time_limit = from_seconds(arguments.duration.value_or(0));
  plan.load.keep_details = !arguments.report.empty();
  plan.load.keep_answers = arguments.save_detailed;

  if (arguments.ready_check_timeout > 0) {
    const SystemClock clock;
    log_info(fmt::format("waiting up to {} s until {} is ready", arguments.ready_check_timeout,
                         arguments.base_url));
    RETURN_IF_ERROR(
        await_ready(plan.load.client, from_seconds(arguments.ready_check_timeout), clock));
  }
  ASSIGN_OR_RETURN(plan.server, ask_models(plan.load.client, arguments.model));
  plan.load.form.model = plan.server.model;
  plan.workload.max_total = arguments.max_model_len.value_or(plan.server.max_model_len);
  if (plan.load.form.endpoint == LoadEndpoint::kCompletions) {
    if (arguments.vocab_size) {
      plan.token_ids = middle_ids(*arguments.vocab_size);
    } else {
      ASSIGN_OR_RETURN(plan.token_ids, ask_token_ids(plan.load.client, plan.server.model));
    }
  }
  return plan;
}

std::string timestamp_text() { return utc_text(unix_seconds(), "%Y%m%d-%H%M%S"); }

Status write_bench_report(const std::string& folder, const ReportInput& input) {
  ASSIGN_OR_RETURN(const ReportFiles files, write_report(folder, input));
  if (!files.plot_problem.empty()) log_error(files.plot_problem);
  log_info(fmt::format("report: {}", files.page));
  return {};
}

}  // namespace sluice
