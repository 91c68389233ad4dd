#include "apps/kv_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/exit_code.h"
#include "base/unix_time.h"
#include "offload/tier_folder.h"

namespace sluice {
namespace {

double mebibytes(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Status print_folder(const std::string& folder) {
  ASSIGN_OR_RETURN(const auto all, list_tier_folder(folder));
  fmt::print("{:<18} {:>8} {:>10}  last written (UTC)\n", "model", "segments", "MiB");
  for (const TierContents& one : all) {
    fmt::print("{:<18} {:>8} {:>10.1f}  {}\n", one.identity, one.segments, mebibytes(one.bytes),
               utc_text(one.written, "%Y-%m-%d %H:%M:%S"));
  }
  return {};
}

Status clear_folder(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::uint64_t bytes, clear_tier_folder(folder));
  fmt::print("{}: {:.1f} MiB removed\n", folder, mebibytes(bytes));
  return {};
}

}  // namespace

CLI::App* add_kv(CLI::App& root, KvArguments& arguments) {
  CLI::App* kv = root.add_subcommand("kv", "The folder of --kv-disk");
  kv->require_subcommand(1);
  CLI::App* ls = kv->add_subcommand("ls", "Lists how much each model has in it");
  CLI::App* wipe = kv->add_subcommand("clear", "Removes all KV from it; no server may have it");
  for (CLI::App* command : {ls, wipe}) {
    command->add_option("DIR", arguments.folder, "the folder")->required();
  }
  wipe->callback([&arguments] { arguments.clear = true; });
  return kv;
}

int run_kv(const KvArguments& arguments) {
  const Status done =
      arguments.clear ? clear_folder(arguments.folder) : print_folder(arguments.folder);
  return done ? kExitSuccess : report_error(done.error(), kExitError);
}

}  // namespace sluice
