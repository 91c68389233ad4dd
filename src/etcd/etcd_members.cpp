#include "etcd/etcd_members.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "etcd/etcd_message.h"

namespace sluice {

namespace {

constexpr Duration kAnswerTime = std::chrono::seconds(1);

}  // namespace

Result<std::vector<http::BaseUrl>> EtcdMembers::parse(const std::vector<std::string>& addresses) {
  std::vector<http::BaseUrl> urls;
  for (const std::string& address : addresses) {
    if (!address.starts_with("http://") && !address.starts_with("https://")) {
      return invalid_argument(
          fmt::format("'{}' is not an address of etcd; write it as http://HOST:PORT or "
                      "https://HOST:PORT, and several with commas between them",
                      address));
    }
    ASSIGN_OR_RETURN(http::BaseUrl url, http::parse_base_url(address));
    urls.push_back(std::move(url));
  }
  return urls;
}

EtcdMembers::EtcdMembers(std::vector<http::BaseUrl> urls, std::optional<http::TlsPartyFiles> party)
    : urls_(std::move(urls)), party_(std::move(party)) {
  CHECK(!urls_.empty());
}

http::HttpClientOptions EtcdMembers::client_options(std::size_t member) const {
  http::HttpClientOptions options;
  options.url = urls_[member];
  options.connect_timeout = options.silence_timeout = kAnswerTime;
  options.party = party_;
  return options;
}

std::size_t EtcdMembers::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

void EtcdMembers::failed(std::size_t member, std::string_view cause) {
  const std::lock_guard lock(mutex_);
  if (member != current_ || size() == 1) return;
  current_ = (current_ + 1) % size();
  if (++failures_ > size()) return;
  log_warning(
      fmt::format("etcd: {}; trying the member at {}", cause, http::server_name(urls_[current_])));
}

void EtcdMembers::answered(std::size_t member) {
  const std::lock_guard lock(mutex_);
  if (member != current_ || failures_ == 0) return;
  failures_ = 0;
  log_info(fmt::format("etcd: the member at {} answers", http::server_name(urls_[member])));
}

bool is_member_failure(int status) { return status >= 500; }

Error member_failure(const http::BaseUrl& url, int status, std::string_view body) {
  return unavailable(fmt::format("{}: {}", http::server_name(url), etcd_error_text(status, body)));
}

}  // namespace sluice
