#include "loadgen/workload_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/log.h"
#include "workload/arrivals.h"
#include "workload/lengths.h"
#include "workload/portable_math.h"

namespace sluice {
namespace {

Result<std::vector<Duration>> arrivals_of(const WorkloadSpec& spec, std::int64_t count) {
  const bool ramped = spec.ramp_up != RampUp::kNone;
  ASSIGN_OR_RETURN(auto arrivals,
                   make_arrivals({ramped ? 1.0 : spec.rate, spec.burstiness, spec.seed}, count));
  if (ramped) ramp_arrivals(spec.ramp_up, spec.ramp_start, spec.ramp_end, arrivals);
  return arrivals;
}

std::string source_of(const WorkloadSpec& spec) {
  const std::string lengths = name_of_lengths(spec.lengths, spec.trace_options.length_scale);
  std::string process = fmt::format("gamma (burstiness {})", spec.burstiness);
  if (spec.burstiness == 1.0) process = "Poisson";
  if (spec.ramp_up != RampUp::kNone) {
    return fmt::format("{} lengths, {} from {} to {} requests/s", lengths, process, spec.ramp_start,
                       spec.ramp_end);
  }
  if (std::isinf(spec.rate)) return fmt::format("{} lengths, all at once", lengths);
  return fmt::format("{} lengths, {} at {} requests/s", lengths, process, spec.rate);
}

void warn_about_shortened(std::int64_t shortened, std::size_t requests, std::int32_t context) {
  if (shortened == 0) return;
  log_warning(fmt::format("{} of {} requests are shortened to the context of {} tokens", shortened,
                          requests, context));
}

Result<MadeWorkload> synthetic(const WorkloadSpec& spec) {
  const std::int64_t count = spec.count > 0 ? spec.count : kDefaultRequests;
  ASSIGN_OR_RETURN(const auto arrivals, arrivals_of(spec, count));
  MadeWorkload made;
  ASSIGN_OR_RETURN(const auto lengths,
                   make_lengths(spec.lengths, count, spec.max_total, spec.seed, &made.shortened,
                                spec.trace_options.length_scale));
  made.workload.source = source_of(spec);
  made.workload.requests = requests_of(lengths, arrivals);
  warn_about_shortened(made.shortened, made.workload.requests.size(), spec.max_total);
  return made;
}

}  // namespace

void shorten_to_context(Workload& workload, std::int32_t context) {
  std::int64_t shortened = 0;
  for (WorkloadRequest& request : workload.requests) {
    if (request.prompt_tokens + request.output_tokens <= context) continue;
    const RequestLengths lengths = shorten({request.prompt_tokens, request.output_tokens}, context);
    request.prompt_tokens = lengths.prompt_tokens;
    request.output_tokens = lengths.output_tokens;
    ++shortened;
  }
  warn_about_shortened(shortened, workload.requests.size(), context);
}

void ramp_arrivals(RampUp kind, double start, double end, std::vector<Duration>& arrivals) {
  const double factor = portable_log(end / start);  // of the whole ramp, as a power of e
  const double last = static_cast<double>(std::max<std::size_t>(arrivals.size(), 2) - 1);
  double seconds = 0;
  Duration before = arrivals.empty() ? Duration(0) : arrivals.front();
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const double progress = static_cast<double>(i) / last;
    const double rate = kind == RampUp::kLinear ? start + (end - start) * progress
                                                : start * portable_exp(progress * factor);
    seconds += to_seconds(arrivals[i] - before) / rate;
    before = std::exchange(arrivals[i], from_seconds(seconds));
  }
}

Result<MadeWorkload> make_workload(const WorkloadSpec& spec) {
  if (spec.trace.empty()) return synthetic(spec);
  TraceOptions options = spec.trace_options;
  options.max_requests = spec.count;
  options.max_total = spec.max_total;
  MadeWorkload made;
  ASSIGN_OR_RETURN(made.workload, read_trace(spec.trace, options));
  return made;
}

}  // namespace sluice
