// The command line as data: which command, with which arguments. The one place that knows CLI11.
// One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/bench_offline.h"
#include "apps/bench_options.h"
#include "apps/doctor.h"
#include "apps/generate.h"
#include "apps/profile.h"
#include "apps/serve.h"
#include "apps/simulate.h"
#include "apps/snapshot.h"
#include "apps/tokenize.h"

namespace sluice {

enum class Command : std::uint8_t {
  kServe,
  kGenerate,
  kTokenize,
  kProfile,
  kBenchServe,
  kBenchCapacity,
  kBenchOffline,
  kSimulate,
  kSnapshot,
  kDoctor,
};

struct CommandLine {
  Command command = Command::kDoctor;
  ServeArguments serve;
  GenerateArguments generate;
  TokenizeArguments tokenize;
  BenchArguments bench;
  OfflineArguments offline;
  SimulateArguments simulate;
  ProfileArguments profile;
  SnapshotArguments snapshot;
  DoctorArguments doctor;
};

// Fills in `line`. An exit code when there is nothing left to do: help was printed, or the usage
// was wrong (then one line on stderr says how), or the command is not built yet.
std::optional<int> parse_command_line(int argc, char** argv, CommandLine& line);

}  // namespace sluice
