// The command line as data: the command and its arguments. Only this file's implementation and the
// files that declare options use CLI11. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/adapter_command.h"
#include "apps/agent.h"
#include "apps/bench_offline.h"
#include "apps/bench_options.h"
#include "apps/coordinator.h"
#include "apps/doctor.h"
#include "apps/functions_command.h"
#include "apps/gateway.h"
#include "apps/generate.h"
#include "apps/kv_command.h"
#include "apps/place.h"
#include "apps/profile.h"
#include "apps/serve.h"
#include "apps/simulate.h"
#include "apps/snapshot.h"
#include "apps/tokenize.h"

namespace sluice {

enum class Command : std::uint8_t {
  kServe,
  kGateway,
  kAgent,
  kGenerate,
  kTokenize,
  kProfile,
  kBenchServe,
  kBenchCapacity,
  kBenchOffline,
  kSimulate,
  kSnapshot,
  kKv,
  kAdapter,
  kFunctions,
  kPlace,
  kCoordinator,
  kDoctor,
  kFunction,
};

struct CommandLine {
  Command command = Command::kDoctor;
  ServeArguments serve;
  GatewayArguments gateway;
  AgentArguments agent;
  GenerateArguments generate;
  TokenizeArguments tokenize;
  BenchArguments bench;
  OfflineArguments offline;
  SimulateArguments simulate;
  ProfileArguments profile;
  SnapshotArguments snapshot;
  KvArguments kv;
  AdapterArguments adapter;
  FunctionsArguments functions;
  PlaceArguments place;
  CoordinatorArguments coordinator;
  DoctorArguments doctor;
};

// Fills in `line`. Returns an exit code when there is nothing left to do: help was printed, the
// usage was wrong (one line on stderr says how), or the command is not built yet.
std::optional<int> parse_command_line(int argc, char** argv, CommandLine& line);

}  // namespace sluice
