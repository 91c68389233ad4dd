// LeaseKeeper: a lease of etcd that this process keeps alive. When a lease ends, the keeper asks
// for another one, which has another id.
//
// A lease counts from the sending of its last renewal, on the monotonic clock, so is_valid() is
// true only while etcd surely has it. A renewal is sent each third of the lease's time; after an
// attempt without success the next one follows after kRetry. Answers about a lease that was dropped
// meanwhile change nothing.
//
// Owner: EtcdLeader or GatewayGroup. Threads: one. Calls come from tick() and from answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "etcd/etcd_client.h"

namespace sluice {

class LeaseKeeper {
 public:
  static constexpr Duration kRetry = std::chrono::milliseconds(200);

  struct Calls {
    // An attempt to get or to renew a lease had no success. The lease is as before.
    std::function<void(const std::string& cause)> failed;
    // The lease is over.
    std::function<void(const std::string& cause)> ended;
  };

  // REQUIRES: ttl_s > 0; `etcd` and the clock outlive it, and no call is answered once it has
  // ended.
  LeaseKeeper(std::int64_t ttl_s, EtcdCalls& etcd, const Clock& clock, Calls calls);

  // Keeps a lease that this process has already got; it is renewed at once. REQUIRES: no tick().
  void adopt(std::int64_t id, TimePoint ends);
  // Ends a lease whose time is over, and asks for a renewal or for a new lease when it is due.
  // Called every kRetry / 2 or so.
  void tick();
  bool is_valid() const { return id_ != 0 && clock_.now() < ends_; }
  std::int64_t id() const { return id_; }  // 0: there is none
  // Renews it no more, so that it ends by itself. A new one is asked for after `pause`.
  void drop(Duration pause);
  // Asks for nothing more. Returns the id of the lease, for the caller to revoke; 0: there is none.
  std::int64_t release();

 private:
  // `asked`: the lease that was to be renewed; 0: a new one.
  void answered(std::int64_t asked, TimePoint sent, const Result<std::string>& body);
  void end(const std::string& cause);

  const std::int64_t ttl_s_;
  EtcdCalls& etcd_;
  const Clock& clock_;
  const Calls calls_;
  std::int64_t id_ = 0;
  TimePoint ends_{};
  TimePoint renew_at_{};
  bool asking_ = false;
  bool released_ = false;
};

}  // namespace sluice
