#include "apps/kv_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <vector>

#include "apps/exit_code.h"
#include "base/unix_time.h"
#include "offload/tier_folder.h"
#include "offload/tier_secret.h"
#include "offload/tier_verify.h"

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

// A block that is not good is computed again and does no harm; the exit code tells that there are
// some.
Result<int> verify_folder(const std::string& folder, const std::string& key_file) {
  const std::string path = default_secret_path();
  if (key_file.empty() && path.empty()) {
    return invalid_argument("the secret has no place: set XDG_STATE_HOME or HOME");
  }
  ASSIGN_OR_RETURN(const HmacKey secret,
                   key_file.empty() ? read_tier_secret(path) : read_tier_key(key_file));
  ASSIGN_OR_RETURN(const auto all, verify_tier_folder(folder, secret));
  bool clean = true;
  fmt::print("{:<18} {:>8} {:>8} {:>8} {:>8}\n", "model", "segments", "good", "bad", "torn");
  for (const VerifiedContents& one : all) {
    fmt::print("{:<18} {:>8} {:>8} {:>8} {:>8}\n", one.identity, one.segments, one.pages.good,
               one.pages.bad, one.pages.torn);
    for (const std::string& line : one.unreadable) fmt::print(stderr, "{}\n", line);
    clean = clean && one.pages.bad == 0 && one.pages.torn == 0 && one.unreadable.empty();
  }
  return clean ? kExitSuccess : kExitError;
}

}  // namespace

CLI::App* add_kv(CLI::App& root, KvArguments& arguments) {
  CLI::App* kv = root.add_subcommand("kv", "The folder of --kv-disk");
  kv->require_subcommand(1);
  const auto add = [&](const char* name, const char* about, KvArguments::Action action) {
    CLI::App* command = kv->add_subcommand(name, about);
    command->add_option("DIR", arguments.folder, "the folder")->required();
    command->callback([&arguments, action] { arguments.action = action; });
    return command;
  };
  add("ls", "Lists how much each model has in it", KvArguments::Action::kList);
  add("verify", "Checks every block in it; no server may have it", KvArguments::Action::kVerify)
      ->add_option("--kv-disk-key", arguments.key_file, "the server's key, if it has one");
  add("clear", "Removes all KV from it; no server may have it", KvArguments::Action::kClear);
  return kv;
}

int run_kv(const KvArguments& arguments) {
  if (arguments.action == KvArguments::Action::kVerify) {
    const auto code = verify_folder(arguments.folder, arguments.key_file);
    return code ? *code : report_error(code.error(), kExitError);
  }
  const Status done = arguments.action == KvArguments::Action::kClear
                          ? clear_folder(arguments.folder)
                          : print_folder(arguments.folder);
  return done ? kExitSuccess : report_error(done.error(), kExitError);
}

}  // namespace sluice
