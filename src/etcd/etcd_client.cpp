#include "etcd/etcd_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice {

// One call and its answer.
class EtcdClient::Sink final : public http::ResponseSink {
 public:
  Sink(EtcdClient& owner, Done done) : owner_(owner), done_(std::move(done)) {}

  void on_head(const http::ResponseHead& head) override { status_ = head.status; }
  void on_body(std::string_view piece) override {
    // One byte more shows that it is too long.
    body_ += piece.substr(0, kMaxEtcdBody + 1 - std::min(body_.size(), kMaxEtcdBody + 1));
  }
  void on_end(Status status) override {
    Result<std::string> result = std::move(body_);
    if (!status) {
      result = tl::unexpected(std::move(status).error());
    } else if (status_ != 200) {
      result = tl::unexpected(unavailable(etcd_error_text(status_, *result)));
    }
    const Done done = std::move(done_);
    owner_.end(this);  // `this` is gone
    done(std::move(result));
  }

 private:
  EtcdClient& owner_;
  Done done_;
  int status_ = 0;
  std::string body_;
};

Result<std::unique_ptr<EtcdClient>> EtcdClient::open(http::EventLoop& loop,
                                                     const std::string& url) {
  http::HttpClientOptions options;
  ASSIGN_OR_RETURN(options.url, http::parse_base_url(url));
  options.connect_timeout = kAnswerTime;
  options.silence_timeout = kAnswerTime;
  ASSIGN_OR_RETURN(auto client, http::HttpClient::open(loop, std::move(options)));
  return std::unique_ptr<EtcdClient>(new EtcdClient(std::move(client)));
}

EtcdClient::EtcdClient(std::unique_ptr<http::HttpClient> client) : client_(std::move(client)) {}

EtcdClient::~EtcdClient() = default;

void EtcdClient::call(const EtcdCall& call, Done done) {
  auto sink = std::make_unique<Sink>(*this, std::move(done));
  Sink& started = *sink;
  sinks_.emplace(&started, std::move(sink));
  client_->start({.method = "POST", .path = call.path, .body = call.body}, started);
}

void EtcdClient::end(Sink* sink) { sinks_.erase(sink); }

}  // namespace sluice
