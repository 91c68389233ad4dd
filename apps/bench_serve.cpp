#include "apps/bench_serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "apps/bench_progress.h"
#include "apps/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "loadgen/report.h"
#include "loadgen/warm_up.h"

namespace sluice {
namespace {

using nlohmann::ordered_json;

std::string_view end_name(LoadEnd end) {
  switch (end) {
    case LoadEnd::kAllEnded: return "all_ended";
    case LoadEnd::kTimeLimit: return "time_limit";
    case LoadEnd::kInterrupted: return "interrupted";
    case LoadEnd::kServerGone: return "server_gone";
  }
  return "";
}

std::string json_of(const ordered_json& value) { return dump_json(value); }

// The run's settings by vLLM's names, then our own.
std::vector<std::pair<std::string, std::string>> facts_of(const BenchPlan& plan,
                                                          const Workload& workload,
                                                          const LoadResult& result) {
  ordered_json rate = "inf";
  if (std::isfinite(plan.workload.rate)) rate = plan.workload.rate;
  if (!plan.workload.trace.empty() || plan.workload.ramp_up != RampUp::kNone) rate = nullptr;
  ordered_json concurrency = nullptr;
  if (plan.load.max_concurrency > 0) concurrency = plan.load.max_concurrency;
  ordered_json errors = ordered_json::array();
  for (const auto& [message, count] : result.errors) {
    errors.push_back({{"message", message}, {"count", count}});
  }
  return {{"date", json_of(timestamp_text())},
          {"endpoint", json_of(endpoint_path(plan.load.form.endpoint))},
          {"model_id", json_of(plan.server.model)},
          {"workload", json_of(workload.source)},
          {"num_prompts", json_of(workload.requests.size())},
          {"request_rate", json_of(rate)},
          {"burstiness", json_of(plan.workload.burstiness)},
          {"max_concurrency", json_of(concurrency)},
          {"seed", json_of(plan.workload.seed)},
          {"ended_by", json_of(end_name(result.end))},
          {"not_sent", json_of(result.not_sent)},
          {"error_counts", json_of(errors)}};
}

// vLLM's lists of each request's results, in the order in which the requests were sent; times in
// seconds.
std::string with_details(const std::string& json, const LoadResult& result) {
  std::vector<std::size_t> order(result.records.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return result.records[a].sent < result.records[b].sent;
  });
  ordered_json lists = {
      {"input_lens", ordered_json::array()},  {"output_lens", ordered_json::array()},
      {"start_times", ordered_json::array()}, {"ttfts", ordered_json::array()},
      {"itls", ordered_json::array()},        {"generated_texts", ordered_json::array()},
      {"errors", ordered_json::array()}};
  for (const std::size_t i : order) {
    const RequestRecord& record = result.records[i];
    const Duration ttft = record.first_token ? *record.first_token - record.arrival : Duration(0);
    lists["input_lens"].push_back(record.prompt_tokens);
    lists["output_lens"].push_back(record.output_tokens);
    lists["start_times"].push_back(to_seconds(record.sent));
    lists["ttfts"].push_back(to_seconds(ttft));
    lists["itls"].push_back(result.answers[i].gaps_s);
    lists["generated_texts"].push_back(result.answers[i].text);
    lists["errors"].push_back(record.error);
  }
  std::string text = json_of(lists);
  text.back() = ',';
  return text.append(json, 1);
}

void tell_what_went_wrong(const LoadResult& result) {
  for (const auto& [message, count] : result.errors) {
    log_error(fmt::format("{} requests failed: {}", count, message));
  }
  if (result.summary.unfinished > 0) {
    log_warning(
        fmt::format("{} requests had not ended; they count with the time that they had waited",
                    result.summary.unfinished));
  }
  if (result.end == LoadEnd::kServerGone) {
    log_error(fmt::format(
        "the server is gone: {} requests in a row had no answer; {} were not sent any more",
        kGoneAfter, result.not_sent));
  } else if (result.not_sent > 0) {
    log_warning(fmt::format("{} requests had not arrived when the run ended", result.not_sent));
  }
}

Result<std::string> save_result(const BenchArguments& arguments, const BenchPlan& plan,
                                const std::string& json) {
  std::string name = arguments.result_filename;
  if (name.empty()) {
    std::string model = plan.server.model;
    std::replace(model.begin(), model.end(), '/', '-');
    name = fmt::format("sluice-{}qps-{}-{}.json", plan.workload.rate, model, timestamp_text());
  }
  const std::filesystem::path path = std::filesystem::path(arguments.result_dir) / name;
  std::error_code ignored;  // writing reports the error
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  auto status = write_file(path, json + '\n');
  if (!status) return with_context("--save-result", std::move(status).error());
  return path.string();
}

Status report_run(const BenchArguments& arguments, const BenchPlan& plan, const Workload& workload,
                  const LoadResult& result) {
  ReportInput input;
  input.title = "sluice bench serve";
  input.facts = {{"Server", arguments.base_url},
                 {"Model", plan.server.model},
                 {"Endpoint", std::string(endpoint_path(plan.load.form.endpoint))},
                 {"Workload", workload.source},
                 {"Requests", fmt::format("{}", workload.requests.size())},
                 {"Date", timestamp_text() + " UTC"},
                 {"Ended by", std::string(end_name(result.end))}};
  input.table = summary_table(result.summary, plan.percentiles);
  input.run = &result;
  return write_bench_report(arguments.report, input);
}

Result<int> bench_serve(const BenchArguments& arguments) {
  ASSIGN_OR_RETURN(BenchPlan plan, make_bench_plan(arguments));
  ASSIGN_OR_RETURN(const MadeWorkload made, make_workload(plan.workload));
  const Workload& workload = made.workload;
  if (!arguments.report.empty()) RETURN_IF_ERROR(prepare_report(arguments.report));
  const PromptMaker prompts(plan.token_ids, plan.workload.seed);
  RETURN_IF_ERROR(warm_up(plan.load, workload, prompts, arguments.num_warmups));
  BenchProgress progress(!arguments.no_progress);
  progress.attach(plan.load);
  const SystemClock clock;
  ASSIGN_OR_RETURN(const LoadResult result, run_load(plan.load, workload, prompts, clock));
  progress.end();
  const std::string json =
      summary_json(result.summary, plan.percentiles, facts_of(plan, workload, result));
  const std::string table = summary_table(result.summary, plan.percentiles, plan.metrics);
  fmt::print("{}", arguments.json ? json + "\n" : table);
  std::fflush(stdout);
  tell_what_went_wrong(result);
  if (arguments.save_result) {
    const std::string saved = arguments.save_detailed ? with_details(json, result) : json;
    ASSIGN_OR_RETURN(const std::string path, save_result(arguments, plan, saved));
    log_info(fmt::format("result: {}", path));
  }
  if (!arguments.report.empty()) {
    RETURN_IF_ERROR(report_run(arguments, plan, workload, result));
  }
  if (result.end == LoadEnd::kInterrupted) return kExitInterrupted;
  return result.summary.failed > 0 || result.end == LoadEnd::kServerGone ? kExitError
                                                                         : kExitSuccess;
}

}  // namespace

int run_bench_serve(const BenchArguments& arguments) {
  const auto code = bench_serve(arguments);
  if (!code) return report_error(code.error(), exit_code_for(code.error()));
  return *code;
}

}  // namespace sluice
