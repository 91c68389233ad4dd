// EtcdCalls and EtcdClient: requests to etcd's JSON gateway (etcd_message.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "etcd/etcd_message.h"
#include "http/event_loop.h"
#include "http/http_client.h"

namespace sluice {

// A place to send requests to; a test has one of its own.
class EtcdCalls {
 public:
  using Done = std::function<void(Result<std::string> body)>;
  virtual ~EtcdCalls() = default;
  // `done` is called once, never inside call(): with the body of an answer with status 200, or with
  // an error. After an error it is unknown whether etcd has done it.
  virtual void call(const EtcdCall& call, Done done) = 0;
};

// The gateway of one etcd over HTTP or HTTPS. Any number of calls at once.
// Owner: the command. Threads: the event loop's. REQUIRES: the loop outlives the client and does
// not run once the client has ended; calls that have no answer then get none.
class EtcdClient final : public EtcdCalls {
 public:
  static constexpr Duration kAnswerTime = std::chrono::seconds(1);

  // Looks the host up. Errors name it.
  static Result<std::unique_ptr<EtcdClient>> open(http::EventLoop& loop, const std::string& url);
  ~EtcdClient() override;

  void call(const EtcdCall& call, Done done) override;

 private:
  class Sink;
  explicit EtcdClient(std::unique_ptr<http::HttpClient> client);
  void end(Sink* sink);

  std::unique_ptr<http::HttpClient> client_;
  std::map<Sink*, std::unique_ptr<Sink>> sinks_;
};

}  // namespace sluice
