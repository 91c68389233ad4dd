#include "apps/adapter_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/exit_code.h"
#include "gateway/adapter_check.h"

namespace sluice {

CLI::App* add_adapter(CLI::App& root, AdapterArguments& arguments) {
  CLI::App* adapter = root.add_subcommand("adapter", "Signatures of adapters");
  adapter->require_subcommand(1);
  CLI::App* sign = adapter->add_subcommand(
      "sign", "Signs an adapter for functions files with require_signature");
  sign->add_option("DIR", arguments.folder, "the adapter's directory; gets the file adapter.sig")
      ->required();
  sign->add_option("--key", arguments.key_file,
                   "an Ed25519 private key, as `openssl genpkey -algorithm ed25519` makes it")
      ->required();
  return adapter;
}

int run_adapter(const AdapterArguments& arguments) {
  const auto made = sign_adapter(arguments.folder, arguments.key_file);
  if (!made) return report_error(made.error(), kExitError);
  fmt::print("signed: {}@sha256:{}\nrequire_signature = \"{}\"\n", arguments.folder,
             to_hex(made->digest), ed25519_public_key_text(made->key));
  return kExitSuccess;
}

}  // namespace sluice
