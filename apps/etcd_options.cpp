#include "apps/etcd_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

namespace sluice {
namespace {

Status check_etcd_files(const EtcdArguments& arguments) {
  const std::initializer_list<bool> given = {!arguments.ssl_certfile.empty(),
                                             !arguments.ssl_keyfile.empty(),
                                             !arguments.ssl_cafile.empty()};
  const auto count = std::count(given.begin(), given.end(), true);
  if (count == 0) return {};
  if (count < 3) {
    return invalid_argument(
        "--etcd-ssl-certfile, --etcd-ssl-keyfile and --etcd-ssl-cafile need each other");
  }
  const auto plain =
      std::find_if(arguments.urls.begin(), arguments.urls.end(),
                   [](const std::string& url) { return !url.starts_with("https://"); });
  if (arguments.urls.empty() || plain != arguments.urls.end()) {
    return invalid_argument(
        fmt::format("--etcd-ssl-certfile needs --etcd https://HOST:PORT, got {}",
                    arguments.urls.empty() ? "none" : fmt::format("'{}'", *plain)));
  }
  return {};
}

}  // namespace

void add_etcd_options(CLI::App& command, EtcdArguments& arguments, const std::string& help,
                      const std::string& group) {
  CLI::Option* const etcd = command.add_option("--etcd", arguments.urls, help)
                                ->delimiter(',')
                                ->allow_extra_args(false)
                                ->group(group);
  command
      .add_option("--etcd-prefix", arguments.prefix,
                  fmt::format("of the keys in etcd (default {})", arguments.prefix))
      ->needs(etcd)
      ->group(group);
  command
      .add_option("--etcd-ssl-certfile", arguments.ssl_certfile,
                  "PEM file with the certificate for an etcd that asks its clients for one")
      ->group(group);
  command.add_option("--etcd-ssl-keyfile", arguments.ssl_keyfile, "PEM file with its key")
      ->group(group);
  command
      .add_option("--etcd-ssl-cafile", arguments.ssl_cafile,
                  "PEM file with certificates of which one has signed etcd's")
      ->group(group);
}

Status check_etcd_prefix(const std::string& prefix) {
  if (!prefix.empty() && prefix.back() != '/') return {};
  return invalid_argument(
      fmt::format("--etcd-prefix is '{}'; it must not be empty, nor end with a slash", prefix));
}

Result<std::unique_ptr<EtcdMembers>> etcd_members(const EtcdArguments& arguments) {
  if (arguments.urls.empty()) {
    RETURN_IF_ERROR(check_etcd_files(arguments));
    return nullptr;
  }
  auto urls = EtcdMembers::parse(arguments.urls);
  if (!urls) return with_context("--etcd", std::move(urls).error());
  RETURN_IF_ERROR(check_etcd_files(arguments));
  std::optional<http::TlsPartyFiles> party;
  if (!arguments.ssl_certfile.empty()) {
    party =
        http::TlsPartyFiles{arguments.ssl_certfile, arguments.ssl_keyfile, arguments.ssl_cafile};
  }
  return std::make_unique<EtcdMembers>(*std::move(urls), std::move(party));
}

}  // namespace sluice
