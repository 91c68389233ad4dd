#include "etcd/etcd_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"

namespace sluice {

// One call and its answer.
class EtcdClient::Sink final : public http::ResponseSink {
 public:
  Sink(EtcdClient& owner, std::size_t member, Done done)
      : owner_(owner), member_(member), done_(std::move(done)) {}

  void on_head(const http::ResponseHead& head) override { status_ = head.status; }
  void on_body(std::string_view piece) override {
    // One byte more shows that it is too long.
    body_ += piece.substr(0, kMaxEtcdBody + 1 - std::min(body_.size(), kMaxEtcdBody + 1));
  }
  void on_end(Status status) override {
    EtcdMembers& members = owner_.members_;
    Result<std::string> result = std::move(body_);
    if (!status) {
      result = tl::unexpected(std::move(status).error());
    } else if (is_member_failure(status_)) {
      result = tl::unexpected(member_failure(members.url(member_), status_, *result));
    } else if (status_ != 200) {
      result = tl::unexpected(unavailable(etcd_error_text(status_, *result)));
    }
    if (status && !is_member_failure(status_)) {
      members.answered(member_);
    } else {
      members.failed(member_, result.error().message);
    }
    const Done done = std::move(done_);
    owner_.end(this);  // `this` is gone
    done(std::move(result));
  }

 private:
  EtcdClient& owner_;
  const std::size_t member_;
  Done done_;
  int status_ = 0;
  std::string body_;
};

Result<std::unique_ptr<EtcdClient>> EtcdClient::open(http::EventLoop& loop, EtcdMembers& members) {
  std::unique_ptr<EtcdClient> etcd(new EtcdClient(members));
  std::optional<Error> failure;
  bool found = false;
  for (std::size_t member = 0; member < members.size(); ++member) {
    auto client = http::HttpClient::open(loop, members.client_options(member));
    found = found || client;
    if (!client) {
      failure = std::move(client).error();
      log_warning(fmt::format("etcd: {}", failure->message));
    }
    etcd->clients_.push_back(client ? *std::move(client) : nullptr);
  }
  if (!found) return *std::move(failure);
  return etcd;
}

EtcdClient::EtcdClient(EtcdMembers& members) : members_(members) {}

EtcdClient::~EtcdClient() = default;

void EtcdClient::call(const EtcdCall& call, Done done) {
  std::size_t member = members_.current();
  while (!clients_[member]) {
    members_.failed(member, fmt::format("the host of the member at {} was not found at the start",
                                        http::server_name(members_.url(member))));
    member = members_.current();
  }
  auto sink = std::make_unique<Sink>(*this, member, std::move(done));
  Sink& started = *sink;
  sinks_.emplace(&started, std::move(sink));
  clients_[member]->start({.method = "POST", .path = call.path, .body = call.body}, started);
}

void EtcdClient::end(Sink* sink) { sinks_.erase(sink); }

}  // namespace sluice
