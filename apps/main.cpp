// The one binary: parses the command line and runs the command, each in a file of its own.
#include <csignal>
#include <exception>

#include "apps/adapter_command.h"
#include "apps/agent.h"
#include "apps/bench_capacity.h"
#include "apps/bench_offline.h"
#include "apps/bench_serve.h"
#include "apps/command_line.h"
#include "apps/exit_code.h"
#include "apps/functions_command.h"
#include "apps/gateway.h"
#include "apps/isolated_model.h"
#include "apps/kv_command.h"

namespace {

int run(int argc, char** argv) {
  sluice::CommandLine line;
  if (const auto code = sluice::parse_command_line(argc, argv, line)) return *code;
  switch (line.command) {
    case sluice::Command::kServe: return sluice::run_serve(line.serve);
    case sluice::Command::kGateway: return sluice::run_gateway(line.gateway);
    case sluice::Command::kAgent: return sluice::run_agent(line.agent);
    case sluice::Command::kGenerate: return sluice::run_generate(line.generate);
    case sluice::Command::kTokenize: return sluice::run_tokenize(line.tokenize);
    case sluice::Command::kBenchServe: return sluice::run_bench_serve(line.bench);
    case sluice::Command::kBenchCapacity: return sluice::run_bench_capacity(line.bench);
    case sluice::Command::kBenchOffline: return sluice::run_bench_offline(line.offline);
    case sluice::Command::kSimulate: return sluice::run_simulate(line.simulate);
    case sluice::Command::kSnapshot: return sluice::run_snapshot(line.snapshot);
    case sluice::Command::kProfile: return sluice::run_profile(line.profile);
    case sluice::Command::kKv: return sluice::run_kv(line.kv);
    case sluice::Command::kFunctions: return sluice::run_functions(line.functions);
    case sluice::Command::kAdapter: return sluice::run_adapter(line.adapter);
    case sluice::Command::kPlace: return sluice::run_place(line.place);
    case sluice::Command::kCoordinator: return sluice::run_coordinator(line.coordinator);
    case sluice::Command::kDoctor: return sluice::run_doctor(line.doctor);
    case sluice::Command::kFunction: return sluice::run_function_command();
  }
  return sluice::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  // A write beyond the limit of file sizes then returns an error and does not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {  // out of memory, mostly: nothing of ours throws
    return sluice::report_error(sluice::internal_error(error.what()), sluice::kExitError);
  }
}
