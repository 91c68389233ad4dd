#include "etcd/ask_etcd.h"

#include <fmt/format.h>

#include "http/fetch.h"

namespace sluice {

Result<std::string> ask_etcd(EtcdMembers& members, const EtcdCall& call) {
  Error failure;
  for (std::size_t tries = 0; tries < members.size(); ++tries) {
    const std::size_t member = members.current();
    auto answer = http::fetch(members.client_options(member),
                              {.method = "POST", .path = call.path, .body = call.body});
    if (answer && !is_member_failure(answer->status)) {
      members.answered(member);
      if (answer->status == 200) return std::move(answer->body);
      return unavailable(etcd_error_text(answer->status, answer->body));
    }
    Error error = answer ? member_failure(members.url(member), answer->status, answer->body)
                         : std::move(answer).error();
    members.failed(member, error.message);
    if (tries > 0) error.message = fmt::format("{}; {}", failure.message, error.message);
    failure = std::move(error);
  }
  return failure;
}

}  // namespace sluice
