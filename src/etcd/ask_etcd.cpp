#include "etcd/ask_etcd.h"

#include "etcd/etcd_client.h"
#include "http/fetch.h"

namespace sluice {

Result<std::string> ask_etcd(const std::string& url, const EtcdCall& call) {
  http::HttpClientOptions options;
  ASSIGN_OR_RETURN(options.url, http::parse_base_url(url));
  options.connect_timeout = options.silence_timeout = EtcdClient::kAnswerTime;
  ASSIGN_OR_RETURN(http::Answer answer,
                   http::fetch(options, {.method = "POST", .path = call.path, .body = call.body}));
  if (answer.status != 200) return unavailable(etcd_error_text(answer.status, answer.body));
  return std::move(answer.body);
}

}  // namespace sluice
