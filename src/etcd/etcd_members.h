// EtcdMembers: the addresses of the members of one etcd cluster, and the member that calls go to.
//
// Calls go to the first member. When it does not answer, later calls go to the next one, and after
// the last one to the first again. The log has a line for each change; while no member answers, it
// has one line for each member.
// Owner: the command. Threads: any.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/base_url.h"
#include "http/http_client.h"
#include "http/tls.h"

namespace sluice {

class EtcdMembers {
 public:
  // The addresses are those of --etcd: http or https, one or more. Errors name the address.
  static Result<std::vector<http::BaseUrl>> parse(const std::vector<std::string>& addresses);

  // `party`: certificates for members that ask clients for theirs. REQUIRES: there is an address,
  // and with `party` all are https.
  explicit EtcdMembers(std::vector<http::BaseUrl> urls,
                       std::optional<http::TlsPartyFiles> party = {});
  EtcdMembers(const EtcdMembers&) = delete;
  EtcdMembers& operator=(const EtcdMembers&) = delete;

  std::size_t size() const { return urls_.size(); }
  const http::BaseUrl& url(std::size_t member) const { return urls_[member]; }
  // To call this member; a call without an answer fails after a second.
  http::HttpClientOptions client_options(std::size_t member) const;
  std::size_t current() const;
  // `member` did not answer a call. `cause` names its address. Calls go to the next member, unless
  // they already go to another one.
  void failed(std::size_t member, std::string_view cause);
  // `member` answered a call.
  void answered(std::size_t member);

 private:
  const std::vector<http::BaseUrl> urls_;
  const std::optional<http::TlsPartyFiles> party_;
  mutable std::mutex mutex_;  // of what follows
  std::size_t current_ = 0;
  std::size_t failures_ = 0;  // since a member answered
};

// Whether an answer with this status is a member's failure: it has no leader, or no majority.
bool is_member_failure(int status);
// The error of such an answer; it names the member.
Error member_failure(const http::BaseUrl& url, int status, std::string_view body);

}  // namespace sluice
