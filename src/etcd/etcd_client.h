// EtcdCalls and EtcdClient: requests to etcd's JSON gateway (etcd_message.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "etcd/etcd_members.h"
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

// The JSON gateways of one etcd cluster's members over HTTP or HTTPS. Any number of calls at once.
//
// A call goes to the current member (etcd_members.h) and is sent to no other one, because a member
// without an answer may have done it. The caller repeats it, which is safe for the caller alone to
// decide; the next member gets that call.
// Owner: the command. Threads: the event loop's. REQUIRES: the loop and the members outlive
// the client, and the loop does not run once the client has ended; calls that have no answer then
// get none.
class EtcdClient final : public EtcdCalls {
 public:
  // Looks the hosts up. A warning names each one that is not found, which gets no calls; an error
  // if none is found.
  static Result<std::unique_ptr<EtcdClient>> open(http::EventLoop& loop, EtcdMembers& members);
  ~EtcdClient() override;

  void call(const EtcdCall& call, Done done) override;

 private:
  class Sink;
  explicit EtcdClient(EtcdMembers& members);
  void end(Sink* sink);

  EtcdMembers& members_;
  std::vector<std::unique_ptr<http::HttpClient>> clients_;  // by member; null: host not found
  std::map<Sink*, std::unique_ptr<Sink>> sinks_;
};

}  // namespace sluice
