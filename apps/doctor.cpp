#include "apps/doctor.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/exit_code.h"
#include "apps/machine_checks.h"
#include "base/json.h"

namespace sluice {
namespace {

void print_json(const std::vector<MachineCheck>& checks, bool usable) {
  nlohmann::ordered_json object = {{"usable", usable}, {"checks", nlohmann::ordered_json::array()}};
  for (const MachineCheck& check : checks) {
    object["checks"].push_back({{"name", check.name},
                                {"level", check_level_name(check.level)},
                                {"found", check.found},
                                {"advice", check.advice}});
  }
  fmt::print("{}\n", dump_json(object));
}

void print_text(const std::vector<MachineCheck>& checks) {
  for (const MachineCheck& check : checks) {
    fmt::print("{:<8} {:<14} {}\n", check_level_name(check.level), check.name, check.found);
    if (!check.advice.empty()) fmt::print("{:<8} {:<14} -> {}\n", "", "", check.advice);
  }
}

}  // namespace

int run_doctor(const DoctorArguments& arguments) {
  const std::vector<MachineCheck> checks = check_machine();
  bool usable = true;
  for (const MachineCheck& check : checks) usable &= check.level != CheckLevel::kFailure;
  if (arguments.json) {
    print_json(checks, usable);
  } else {
    print_text(checks);
  }
  return usable ? kExitSuccess : kExitError;
}

}  // namespace sluice
