#include "etcd/etcd_members.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "etcd/etcd_message.h"

namespace sluice {

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

EtcdMembers::EtcdMembers(std::vector<http::BaseUrl> urls) : urls_(std::move(urls)) {
  CHECK(!urls_.empty());
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
