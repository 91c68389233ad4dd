#include "apps/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "apps/exit_code.h"
#include "apps/interrupt.h"
#include "apps/simulate_functions.h"
#include "apps/simulate_setup.h"
#include "base/json.h"
#include "sim/hardware.h"
#include "sim/model_shapes.h"
#include "sim/simulated_capacity.h"

namespace sluice {
namespace {

using SimulateJson = nlohmann::ordered_json;

constexpr double kGB = 1e9;

// A bar on stderr, when that is a terminal.
class Progress {
 public:
  explicit Progress(bool enabled) : enabled_(enabled && isatty(STDERR_FILENO) != 0) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_label(std::string label) { label_ = std::move(label); }
  // False when the user has interrupted.
  bool show(double share) {
    if (enabled_) {
      constexpr int kWidth = 30;
      const auto done = static_cast<std::size_t>(share * kWidth);
      fmt::print(stderr, "\r\x1b[K{} [{:<{}}] {:3.0f} %", label_, std::string(done, '#'), kWidth,
                 100 * share);
      drawn_ = true;
    }
    return !interrupted();
  }
  ProgressReport report() {
    return [this](double share) { return show(share); };
  }
  void clear() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
    drawn_ = false;
  }

 private:
  bool enabled_;
  bool drawn_ = false;
  std::string label_ = "simulating";
};

// ---------------------------------------------------------------- known models and hardware

void print_known_json() {
  SimulateJson gpus = SimulateJson::array();
  for (const GpuSpec& g : gpu_specs()) {
    gpus.push_back({{"name", g.name},
                    {"tflops", g.flops / 1e12},
                    {"memory_gb", g.memory_bytes / kGB},
                    {"bandwidth_gb_per_s", g.bandwidth / kGB},
                    {"nvlink_group", g.nvlink_group},
                    {"nvlink_gb_per_s", g.nvlink_bandwidth / kGB},
                    {"pcie_gb_per_s", g.pcie_bandwidth / kGB}});
  }
  SimulateJson models = SimulateJson::array();
  for (const ModelShape& m : model_shapes()) {
    models.push_back({{"name", m.name},
                      {"parameters_billion", m.parameters() / 1e9},
                      {"layers", m.layers},
                      {"hidden", m.hidden},
                      {"heads", m.heads},
                      {"kv_heads", m.kv_heads},
                      {"window", m.window}});
  }
  fmt::print("{}\n", dump_json(SimulateJson{{"gpus", gpus}, {"models", models}}));
}

void print_known(bool json) {
  if (json) return print_known_json();
  fmt::print("{:<14} {:>8} {:>8} {:>10} {:>22} {:>10}\n", "GPU", "TFLOPS", "GB", "GB/s",
             "NVLink GB/s (GPUs)", "PCIe GB/s");
  for (const GpuSpec& g : gpu_specs()) {
    const std::string nvlink =
        g.nvlink_group > 1 ? fmt::format("{:.0f} ({})", g.nvlink_bandwidth / kGB, g.nvlink_group)
                           : "-";
    fmt::print("{:<14} {:>8.0f} {:>8.0f} {:>10.0f} {:>22} {:>10.0f}\n", g.name, g.flops / 1e12,
               g.memory_bytes / kGB, g.bandwidth / kGB, nvlink, g.pcie_bandwidth / kGB);
  }
  fmt::print("\n{:<14} {:>8} {:>8} {:>8} {:>8} {:>10} {:>8}\n", "model", "10^9", "layers", "hidden",
             "heads", "KV heads", "window");
  for (const ModelShape& m : model_shapes()) {
    fmt::print("{:<14} {:>8.1f} {:>8} {:>8} {:>8} {:>10} {:>8}\n", m.name, m.parameters() / 1e9,
               m.layers, m.hidden, m.heads, m.kv_heads,
               m.window > 0 ? std::to_string(m.window) : "-");
  }
}

// ---------------------------------------------------------------- one run

std::string json_text(std::string_view text) { return dump_json(SimulateJson(text)); }

// The run's settings, printed before its results.
std::vector<std::pair<std::string, std::string>> facts(const SimulatedMachine& m) {
  std::vector<std::pair<std::string, std::string>> extra = {
      {"gpu", json_text(m.gpu)},
      {"model", json_text(m.model)},
      {"tp", std::to_string(m.tp)},
      {"pp", std::to_string(m.pp)},
      {"replicas", std::to_string(m.options.replicas)},
      {"host_stack", json_text(m.host_stack)},
      {"scheduler", json_text(m.options.replica.scheduler)},
      {"token_budget", std::to_string(m.options.replica.token_budget)},
      {"max_num_seqs", std::to_string(m.options.replica.max_num_seqs)},
      {"max_model_len", std::to_string(m.options.replica.max_model_len)},
      {"kv_blocks", std::to_string(m.options.replica.num_blocks)},
      {"reference_decode_ms", dump_json(SimulateJson(to_milliseconds(m.reference_decode)))}};
  if (m.tbt_slo)
    extra.emplace_back("tbt_slo_ms", dump_json(SimulateJson(to_milliseconds(*m.tbt_slo))));
  if (m.predictor) {
    const PredictionError& e = *m.predictor;
    extra.emplace_back(
        "predictor_error",
        dump_json(SimulateJson{{"median", e.median}, {"p90", e.p90}, {"largest", e.largest}}));
  }
  return extra;
}

std::string pipeline_json(const PipelineTimes& t) {
  return dump_json(SimulateJson{{"busy_s", to_seconds(t.busy)},
                                {"prefill_lengths_s", to_seconds(t.prefill_lengths)},
                                {"prefill_decode_s", to_seconds(t.prefill_decode)},
                                {"context_s", to_seconds(t.context)},
                                {"link_s", to_seconds(t.link)},
                                {"unfilled_s", to_seconds(t.unfilled)}});
}

void print_run(const SimulatedMachine& m, const SimulationResult& r, const Workload& workload,
               const SimulateSettings& settings, bool json) {
  if (json) {
    auto extra = facts(m);
    extra.emplace_back("workload", json_text(workload.source));
    extra.emplace_back("steps", std::to_string(r.stats.steps));
    extra.emplace_back("computed_tokens", std::to_string(r.stats.tokens));
    extra.emplace_back("cached_prompt_tokens", std::to_string(r.stats.cached_tokens));
    extra.emplace_back("preemptions", std::to_string(r.stats.preemptions));
    extra.emplace_back("tier_saved_blocks", std::to_string(r.stats.saved_blocks));
    extra.emplace_back("tier_loaded_blocks", std::to_string(r.stats.loaded_blocks));
    extra.emplace_back("kv_peak_held_blocks", std::to_string(r.stats.peak_held_blocks));
    extra.emplace_back("kv_peak_started_blocks", std::to_string(r.stats.peak_started_blocks));
    extra.emplace_back("kv_block_bytes", dump_json(SimulateJson(m.block_bytes)));
    extra.emplace_back("redirected_requests", std::to_string(r.redirected));
    extra.emplace_back("instance_starts", std::to_string(r.starts));
    extra.emplace_back("stage_times", pipeline_json(r.stats.pipeline));
    fmt::print("{}\n", summary_json(r.summary, settings.percentiles, extra));
    return;
  }
  fmt::print("{} on {} x {}, tp {}, pp {}; {}, token budget {}; {}\n", m.model,
             m.tp * m.pp * m.options.replicas, m.gpu, m.tp, m.pp, m.options.replica.scheduler,
             m.options.replica.token_budget, workload.source);
  fmt::print("{}", summary_table(r.summary, settings.percentiles));
  const PipelineTimes& t = r.stats.pipeline;
  if (m.options.autoscale) fmt::print("{} requests on the machine that was added\n", r.redirected);
  if (m.options.instances) fmt::print("{} instances were started\n", r.starts);
  if (m.options.replica.tier_pages > 0) {
    fmt::print("tier: {} blocks saved, {} loaded\n", r.stats.saved_blocks, r.stats.loaded_blocks);
  }
  fmt::print(
      "{} steps of {:.1f} tokens, {} preemptions; a decode step of 32 at 4k takes {:.1f} ms\n",
      r.stats.steps,
      static_cast<double>(r.stats.tokens) /
          static_cast<double>(std::max<std::int64_t>(1, r.stats.steps)),
      r.stats.preemptions, to_milliseconds(m.reference_decode));
  if (m.pp == 1) return;
  const double all = to_seconds(t.busy + t.bubbles() + t.link + t.unfilled);
  const auto percent = [&](Duration part) { return 100 * to_seconds(part) / all; };
  fmt::print(
      "stages: busy {:.1f} %, bubbles by prefill lengths {:.1f} %, by prefill beside decode "
      "{:.1f} %, by context {:.1f} %, link {:.1f} %, nothing to run {:.1f} %\n",
      percent(t.busy), percent(t.prefill_lengths), percent(t.prefill_decode), percent(t.context),
      percent(t.link), percent(t.unfilled));
}

Status run_once(const SimulatedMachine& machine, const SimulatedLoad& load,
                const SimulateSettings& settings, const SimulateArguments& a) {
  Workload made;
  if (!load.has_times()) {
    if (!a.qps)
      return invalid_argument(
          "--qps, --rate-steps or --trace is needed, or --capacity or --search");
    ASSIGN_OR_RETURN(made, load.at_rate(*a.qps));
  }
  const Workload& workload = load.has_times() ? load.trace() : made;
  Progress progress(!a.no_progress);
  auto result = simulate(workload, machine.options, *machine.cost, progress.report());
  progress.clear();
  if (!result) return std::move(result).error();
  print_run(machine, *result, workload, settings, a.json);
  return {};
}

// ---------------------------------------------------------------- capacity

CapacityOptions capacity_options(const SimulateArguments& a) {
  CapacityOptions options;
  options.objective.median_scheduling_delay = from_seconds(a.scheduling_delay_s);
  options.start_rate = a.start_rate;
  options.resolution = a.resolution;
  options.max_probes = a.max_probes;
  return options;
}

Status check_capacity_arguments(const SimulatedLoad& load, const SimulateArguments& a) {
  if (load.has_times()) {
    return invalid_argument(
        "--capacity and --search choose the rate: --trace and --rate-steps have times of their "
        "own");
  }
  if (a.qps) return invalid_argument("--capacity and --search choose the rate: leave out --qps");
  if (!a.tbt_slo_ms && !a.tbt_slo_factor) {
    return invalid_argument("--capacity and --search need --tbt-slo-ms or --tbt-slo-factor");
  }
  if (!(a.start_rate > 0) || !(a.resolution > 0) || a.max_probes < 1 || a.scheduling_delay_s < 0) {
    return invalid_argument(
        "--start-rate, --resolution and --max-probes must be above 0, --scheduling-delay-s at "
        "least 0");
  }
  return {};
}

void print_capacity(const SimulatedMachine& machine, const CapacityResult& r, bool json) {
  if (json) {
    SimulateJson object;
    for (const auto& [key, value] : facts(machine)) object[key] = parse_ordered_json(value);
    object["capacity_request_rate"] = r.rate;
    object["failing_request_rate"] =
        r.failing_rate > 0 ? SimulateJson(r.failing_rate) : SimulateJson(nullptr);
    object["exhausted"] = r.exhausted;
    object["probes"] = SimulateJson::array();
    for (const CapacityProbe& p : r.probes) {
      object["probes"].push_back(
          {{"met", p.met},
           {"request_rate", p.rate},
           {"p99_itl_ms", to_milliseconds(p.p99_tbt)},
           {"median_scheduling_delay_ms", to_milliseconds(p.median_scheduling_delay)}});
    }
    fmt::print("{}\n", dump_json(object));
    return;
  }
  fmt::print("{:>10} {:>14} {:>26}\n", "requests/s", "P99 TBT (ms)", "median queue delay (ms)");
  for (const CapacityProbe& p : r.probes) {
    fmt::print("{:>10.3f} {:>14.1f} {:>26.1f}  {}\n", p.rate, to_milliseconds(p.p99_tbt),
               to_milliseconds(p.median_scheduling_delay), p.met ? "met" : "missed");
  }
  fmt::print("capacity: {:.3f} requests per second within a P99 TBT of {:.1f} ms{}\n", r.rate,
             to_milliseconds(*machine.tbt_slo), r.exhausted ? " (stopped by --max-probes)" : "");
}

Status run_capacity(const SimulatedMachine& machine, const SimulatedLoad& load,
                    const SimulateArguments& a) {
  RETURN_IF_ERROR(check_capacity_arguments(load, a));
  Progress progress(!a.no_progress);
  CapacityOptions options = capacity_options(a);
  options.objective.p99_tbt = *machine.tbt_slo;
  auto result = find_simulated_capacity(machine, load, options, progress.report());
  progress.clear();
  if (!result) return std::move(result).error();
  print_capacity(machine, *result, a.json);
  return {};
}

// ---------------------------------------------------------------- search

void print_search(const DeploymentSearch& search, double slo_ms, bool json) {
  if (json) {
    SimulateJson list = SimulateJson::array();
    for (const DeploymentChoice& c : search.found) {
      list.push_back({{"tp", c.tp},
                      {"pp", c.pp},
                      {"token_budget", c.token_budget},
                      {"replicas", c.replicas},
                      {"capacity_request_rate", c.capacity}});
    }
    fmt::print("{}\n",
               dump_json(SimulateJson{
                   {"tbt_slo_ms", slo_ms}, {"tried", search.tried}, {"deployments", list}}));
    return;
  }
  fmt::print("{:>4} {:>4} {:>9} {:>13} {:>22}\n", "tp", "pp", "replicas", "token budget",
             "capacity (requests/s)");
  for (const DeploymentChoice& c : search.found) {
    fmt::print("{:>4} {:>4} {:>9} {:>13} {:>22.3f}\n", c.tp, c.pp, c.replicas, c.token_budget,
               c.capacity);
  }
  fmt::print("{} of {} deployments fit in memory; P99 TBT within {:.1f} ms\n", search.found.size(),
             search.tried, slo_ms);
}

Status run_search(const Deployment& deployment, const SimulatedLoad& load,
                  const SimulateSettings& settings, const SimulateArguments& a) {
  RETURN_IF_ERROR(check_capacity_arguments(load, a));
  if (!a.tbt_slo_ms) {
    return invalid_argument("--search compares deployments: give one --tbt-slo-ms for all of them");
  }
  const std::int32_t gpus = a.gpus.value_or(a.gpus_per_node);
  if (gpus < 1) return invalid_argument(fmt::format("--gpus must be at least 1, got {}", gpus));
  Progress progress(!a.no_progress);
  const auto show = [&](const DeploymentChoice& choice, double share) {
    progress.set_label(
        fmt::format("tp {} pp {} budget {}", choice.tp, choice.pp, choice.token_budget));
    return progress.show(share);
  };
  auto found =
      search_deployments(deployment, gpus, settings.machine, load, capacity_options(a), show);
  progress.clear();
  if (!found) return std::move(found).error();
  print_search(*found, *a.tbt_slo_ms, a.json);
  return {};
}

Status run_profile(const SimulateArguments& a) {
  if (!a.gpu.empty() || !a.model.empty() || a.search || a.tp != 1 || a.pp != 1) {
    return invalid_argument(
        "--profile is a machine with its model: leave out --gpu, --model, --tp, --pp and --search");
  }
  auto profile = load_profile(a.profile);
  if (!profile) return with_context("--profile", std::move(profile).error());
  ASSIGN_OR_RETURN(const SimulateSettings settings, parse_simulate_settings(a, &*profile));
  ASSIGN_OR_RETURN(const SimulatedLoad load, SimulatedLoad::make(settings.load));
  ASSIGN_OR_RETURN(const SimulatedMachine machine,
                   make_profiled_machine(*profile, settings.machine));
  return a.capacity ? run_capacity(machine, load, a) : run_once(machine, load, settings, a);
}

Status run(const SimulateArguments& a) {
  if (a.list) {
    print_known(a.json);
    return {};
  }
  if (a.capacity && a.search) {
    return invalid_argument("--capacity and --search exclude each other");
  }
  catch_interrupts();
  if (!a.functions.empty()) return simulate_functions_file(a);
  if (!a.profile.empty()) return run_profile(a);
  if (a.kv_tokens) return invalid_argument("--kv-tokens is for --profile; a GPU has what it has");
  ASSIGN_OR_RETURN(const Deployment deployment, parse_deployment(a));
  ASSIGN_OR_RETURN(const SimulateSettings settings, parse_simulate_settings(a, nullptr));
  ASSIGN_OR_RETURN(const SimulatedLoad load, SimulatedLoad::make(settings.load));
  if (a.search) return run_search(deployment, load, settings, a);
  ASSIGN_OR_RETURN(const SimulatedMachine machine, make_machine(deployment, settings.machine));
  return a.capacity ? run_capacity(machine, load, a) : run_once(machine, load, settings, a);
}

}  // namespace

int run_simulate(const SimulateArguments& arguments) {
  const Status done = run(arguments);
  return done ? kExitSuccess : report_error(done.error(), exit_code_for(done.error()));
}

}  // namespace sluice
