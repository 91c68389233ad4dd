#include "apps/snapshot_commands.h"

#include <CLI/CLI.hpp>

#include "apps/engine_flags.h"

namespace sluice {

CLI::App* add_snapshot(CLI::App& root, SnapshotArguments& arguments) {
  CLI::App* snapshot =
      root.add_subcommand("snapshot", "Files that spare a start what the last one made");
  snapshot->require_subcommand(1);
  CLI::App* save = snapshot->add_subcommand("save", "Makes a file for a model on this machine");
  save->add_option("MODEL", arguments.model, "checkpoint directory or GGUF file")->required();
  save->add_option("-o,--output", arguments.file, "the file")->required();
  save->add_flag("--add", arguments.add, "keep the file's sections for other machines and options");
  save->add_flag("--weights", arguments.weights,
                 "keep the weights that --dtype converts; a start maps them from the file");
  add_engine_options(*save, arguments.engine);
  add_warm_options(*save, arguments.warm);
  save->callback([&arguments] { arguments.action = SnapshotAction::kSave; });

  CLI::App* inspect =
      snapshot->add_subcommand("inspect", "Lists sections, sizes and what each depends on");
  inspect->add_option("FILE", arguments.file, "of sluice snapshot save")->required();
  inspect->add_flag("--json", arguments.json, "one JSON object on stdout");
  inspect->callback([&arguments] { arguments.action = SnapshotAction::kInspect; });

  CLI::App* verify = snapshot->add_subcommand(
      "verify", "Starts with and without the file; exits 1 if answers differ");
  verify->add_option("FILE", arguments.file, "of sluice snapshot save")->required();
  verify->add_option("MODEL", arguments.model, "checkpoint directory or GGUF file")->required();
  verify->add_flag("--json", arguments.json, "one JSON object on stdout");
  add_engine_options(*verify, arguments.engine);
  verify->callback([&arguments] { arguments.action = SnapshotAction::kVerify; });
  return snapshot;
}

}  // namespace sluice
