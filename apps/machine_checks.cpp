#include "apps/machine_checks.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/make_device.h"
#include "base/large_pages.h"
#include "base/thread_plan.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda_device.h"
#include "function/probe_sandbox.h"

namespace sluice {
namespace {

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

MachineCheck check_isa() {
  std::string names;
  for (const CpuIsa isa : available_cpu_isas()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", cpu_isa_name(isa));
  }
  MachineCheck check{"isa", CheckLevel::kOk, names, ""};
  if (available_cpu_isas().back() == CpuIsa::kReference) {
    check.level = CheckLevel::kWarning;
    check.advice = "no fast kernels run here: use a CPU with AVX2 and FMA";
  }
  return check;
}

// The unit that the kernels multiply BF16 with.
std::optional<MathUnit> bf16_unit(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kReference: return {};
    case CpuIsa::kAvx2:
    case CpuIsa::kAvx2Vnni:
    case CpuIsa::kAvx512:
    case CpuIsa::kAvx512Vnni:
    case CpuIsa::kAvx512Bf16Fma: return MathUnit::kFma;
    case CpuIsa::kAvx512Bf16: return MathUnit::kBf16Pairs;
    case CpuIsa::kAmx: return MathUnit::kAmxBf16;
  }
  return {};
}

MachineCheck check_limits(const Device& device, const ThreadPlan& plan) {
  LimitsOptions options;
  options.threads = plan.threads;
  const auto memory = device.memory_info();
  if (!memory) return {"limits", CheckLevel::kWarning, memory.error().message, ""};
  options.read_bytes = std::min(options.read_bytes, memory->free_bytes / 4);
  if (options.read_bytes < std::int64_t{1} << 20) {
    return {"limits", CheckLevel::kNote, "not measured: too little memory is free", ""};
  }
  const SystemClock clock;
  const MachineLimits limits = measure_limits(options, clock);
  MachineCheck check = judge_limits(limits, available_cpu_isas().back());
  if (plan.threads != plan.cores || plan.cpus == plan.cores) return check;
  options.threads = plan.cpus;
  judge_threads(limits, measure_limits(options, clock), available_cpu_isas().back(), check);
  return check;
}

MachineCheck check_cores(const ThreadPlan& plan) {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  MachineCheck check{"cores", CheckLevel::kOk,
                     fmt::format("{} of {} CPUs usable; {} threads: {}", plan.cpus, online,
                                 plan.threads, plan.reason),
                     ""};
  if (plan.cpus < online) {
    check.level = CheckLevel::kNote;
    check.advice = "an affinity mask keeps the others away (taskset, cpuset)";
  }
  return check;
}

MachineCheck check_memory(const Device& device) {
  const auto memory = device.memory_info();
  if (!memory) return {"memory", CheckLevel::kWarning, memory.error().message, ""};
  MachineCheck check{"memory", CheckLevel::kOk,
                     fmt::format("{:.1f} GiB free of {:.1f} GiB", gib(memory->free_bytes),
                                 gib(memory->total_bytes)),
                     ""};
  if (memory->free_bytes < std::int64_t{1} << 30) {
    check.level = CheckLevel::kWarning;
    check.advice = "less than 1 GiB is free: only small models will run";
  }
  return check;
}

// Arenas need large address ranges. Small models need less than this check tries to reserve.
MachineCheck check_address_space(Device& device) {
  constexpr std::size_t kProbe = std::size_t{64} << 30;
  const auto range = device.reserve(kProbe);
  if (!range) {
    return {"address space", CheckLevel::kWarning, range.error().message,
            "only small models will run: lift the limit on virtual memory (ulimit -v unlimited)"};
  }
  const std::string found = fmt::format("64 GiB reserved at {}", fmt::ptr(range->base));
  device.release(*range);
  return {"address space", CheckLevel::kOk, found, ""};
}

MachineCheck check_limit(const char* name, int resource, rlim_t wanted, const char* advice) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) {
    return {name, CheckLevel::kWarning, "cannot be read", ""};
  }
  const bool enough = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted;
  return {name, enough ? CheckLevel::kOk : CheckLevel::kNote,
          limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur),
          enough ? "" : advice};
}

MachineCheck check_huge_pages() {
  MachineCheck check{"huge pages", CheckLevel::kNote, own_large_page_rule(), ""};
  if (check.found.empty()) {
    check.found = "this kernel has none";
  } else if (check.found == "never") {
    check.advice =
        "models run faster with: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  } else {
    check.level = CheckLevel::kOk;
  }
  return check;
}

// Functions share the backbone, and each has page tables of its own for it.
MachineCheck check_shared_huge_pages() { return judge_shared_pages(shared_large_page_rule()); }

// The devices of this machine. Making each one shows whether it can be used: a GPU without code in
// this build, for example, is found but refused.
MachineCheck check_cuda() {
  const auto machine = inspect_cuda();
  if (!machine) return {"cuda", CheckLevel::kNote, machine.error().message, ""};
  MachineCheck check{"cuda", CheckLevel::kOk, machine->driver + ", " + machine->library, ""};
  for (std::size_t i = 0; i < machine->devices.size(); ++i) {
    check.found += "; " + machine->devices[i];
    const auto device = make_cuda_device(static_cast<int>(i));
    if (device) continue;
    check.level = CheckLevel::kWarning;
    check.advice = device.error().message;
  }
  return check;
}

// For `serve --isolation process`.
MachineCheck check_sandbox() {
  const auto report = probe_sandbox({"/proc/self/exe", "function"}, {});
  if (!report) {
    return {"sandbox", CheckLevel::kWarning, report.error().message,
            "serve --isolation process will not start here"};
  }
  if (report->complete()) {
    return {"sandbox", CheckLevel::kOk, fmt::format("all {} layers", kLayerCount), ""};
  }
  return {"sandbox", CheckLevel::kNote, "without: " + report->missing(),
          "serve --isolation process needs --sandbox best-effort here; docs/isolation.md says how "
          "to get the layers"};
}

}  // namespace

const char* check_level_name(CheckLevel level) {
  switch (level) {
    case CheckLevel::kOk: return "ok";
    case CheckLevel::kNote: return "note";
    case CheckLevel::kWarning: return "warning";
    case CheckLevel::kFailure: return "failure";
  }
  return "";
}

MachineCheck judge_shared_pages(const std::string& rule) {
  MachineCheck check{"shared pages", CheckLevel::kOk, rule, ""};
  if (grants_large_pages(rule)) return check;
  check.level = CheckLevel::kNote;
  if (rule.empty()) {
    check.found = "this kernel has no large pages for shared memory";
    return check;
  }
  check.advice = fmt::format(
      "each process of serve --isolation process has 2 MiB of page tables for each GiB of weights; "
      "large pages save them: {}",
      kLargePageAdvice);
  return check;
}

MachineCheck judge_limits(const MachineLimits& limits, CpuIsa chosen) {
  MachineCheck check{"limits", CheckLevel::kOk,
                     fmt::format("{} threads: {}", limits.threads, limits_text(limits)), ""};
  const std::optional<MathUnit> unit = bf16_unit(chosen);
  if (!unit) return check;
  constexpr double kNoise = 1.1;
  for (const CpuIsa isa : {CpuIsa::kAvx512Bf16Fma, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    const MathUnit other = *bf16_unit(isa);
    if (limits.peak(other) <= kNoise * limits.peak(*unit)) continue;
    check.level = CheckLevel::kWarning;
    check.advice = fmt::format(
        "the kernels multiply BF16 with {}, and {} is {:.1f} times as fast here: please report "
        "this CPU, and use --isa {}",
        math_unit_name(*unit), math_unit_name(other), limits.peak(other) / limits.peak(*unit),
        cpu_isa_name(isa));
  }
  return check;
}

void judge_threads(const MachineLimits& cores, const MachineLimits& cpus, CpuIsa chosen,
                   MachineCheck& check) {
  const MathUnit unit = bf16_unit(chosen).value_or(MathUnit::kFma);
  if (cores.read <= 0 || cores.peak(unit) <= 0) return;
  const double read = cpus.read / cores.read;
  const double computed = cpus.peak(unit) / cores.peak(unit);
  check.found += fmt::format(
      "; a thread for each of {} CPUs reads {:.2f} and computes {:.2f} times "
      "as fast",
      cpus.threads, read, computed);
  constexpr double kWorthIt = 1.1;
  if (read <= kWorthIt || computed < 1 / kWorthIt) return;
  check.level = std::max(check.level, CheckLevel::kNote);
  check.advice += fmt::format("{}decodes may be faster with --threads {}",
                              check.advice.empty() ? "" : "; ", cpus.threads);
}

std::vector<MachineCheck> check_machine() {
  std::vector<MachineCheck> checks;
  const auto device = make_cpu_device({});
  if (!device) {
    checks.push_back({"device", CheckLevel::kFailure, device.error().message, ""});
    return checks;
  }
  checks.push_back({"device", CheckLevel::kOk, (*device)->traits().description, ""});
  checks.push_back(check_isa());
  const ThreadPlan plan = planned_threads(0);
  checks.push_back(check_limits(**device, plan));
  checks.push_back(check_cores(plan));
  checks.push_back(check_memory(**device));
  checks.push_back(check_address_space(**device));
  checks.push_back(check_limit("open files", RLIMIT_NOFILE, 1024, "ulimit -n 1024 or more"));
  checks.push_back(check_limit("locked memory", RLIMIT_MEMLOCK, rlim_t{64} << 10,
                               "only pinned memory will need it; ulimit -l unlimited"));
  checks.push_back(check_huge_pages());
  checks.push_back(check_shared_huge_pages());
  checks.push_back(check_sandbox());
  checks.push_back(check_cuda());
  return checks;
}

}  // namespace sluice
