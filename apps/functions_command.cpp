#include "apps/functions_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/exit_code.h"
#include "base/file.h"
#include "etcd/ask_etcd.h"

namespace sluice {
namespace {

Result<EtcdOutcome> publish(const FunctionsArguments& arguments) {
  RETURN_IF_ERROR(check_etcd_prefix(arguments.group.etcd.prefix));
  RETURN_IF_ERROR(load_functions(arguments.file));
  ASSIGN_OR_RETURN(const std::string text, read_file(arguments.file, GatewayGroup::kMaxFunctions));
  ASSIGN_OR_RETURN(const auto members, etcd_members(arguments.group.etcd));
  auto answer =
      ask_etcd(*members, publish_functions(arguments.group.etcd.prefix, text, Publish::kAlways));
  if (!answer) return with_context("--etcd", std::move(answer).error());
  return parse_etcd_outcome(*answer);
}

constexpr const char* kEtcdHelp =
    "etcd 3.4 or later that several gateways share, such as http://127.0.0.1:2379; several members "
    "with commas between them";

}  // namespace

void add_group_options(CLI::App& command, GroupArguments& arguments) {
  const std::string group = "Options for several gateways";
  add_etcd_options(command, arguments.etcd, kEtcdHelp, group);
  command
      .add_option("--name", arguments.name,
                  "of this gateway among those of the etcd (default: the host's name)")
      ->group(group);
}

CLI::App* add_functions(CLI::App& root, FunctionsArguments& arguments) {
  CLI::App* functions = root.add_subcommand("functions", "The functions file of several gateways");
  functions->require_subcommand(1);
  CLI::App* publish = functions->add_subcommand(
      "publish", "Checks a functions file and gives it to all gateways of an etcd");
  publish->add_option("FILE", arguments.file, "the functions file")->required();
  add_etcd_options(*publish, arguments.group.etcd, kEtcdHelp, "Options");
  publish->get_option("--etcd")->required();
  return functions;
}

int run_functions(const FunctionsArguments& arguments) {
  const auto done = publish(arguments);
  if (!done) return report_error(done.error(), exit_code_for(done.error()));
  fmt::print("published: {}, revision {}\n", arguments.file, done->revision);
  return kExitSuccess;
}

}  // namespace sluice
