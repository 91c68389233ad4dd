#include "http/fetch.h"

#include <optional>
#include <utility>

namespace sluice::http {
namespace {

constexpr std::size_t kMaxBodyBytes = 64 << 20;

class WholeAnswer final : public ResponseSink {
 public:
  WholeAnswer(EventLoop& loop, HttpClient& client) : loop_(loop), client_(client) {}

  void on_head(const ResponseHead& head) override { answer_.status = head.status; }
  void on_body(std::string_view piece) override {
    if (answer_.body.size() + piece.size() > kMaxBodyBytes) {
      client_.cancel(*this);
      return on_end(unavailable("the answer is longer than 64 MiB"));
    }
    answer_.body += piece;
  }
  void on_end(Status status) override {
    status_ = std::move(status);
    loop_.stop();
  }

  Result<Answer> take() {
    RETURN_IF_ERROR(*status_);
    return std::move(answer_);
  }

 private:
  EventLoop& loop_;
  HttpClient& client_;
  Answer answer_;
  std::optional<Status> status_;
};

}  // namespace

Result<Answer> fetch(const HttpClientOptions& options, const ClientRequest& request) {
  EventLoop loop;
  ASSIGN_OR_RETURN(const auto client, HttpClient::open(loop, options));
  WholeAnswer answer(loop, *client);
  client->start(request, answer);
  loop.run();
  return answer.take();
}

}  // namespace sluice::http
