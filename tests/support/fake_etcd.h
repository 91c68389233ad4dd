// An etcd in memory, and a wire to it that a test works by hand: for tests of users of src/etcd.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/clock.h"
#include "etcd/etcd_client.h"
#include "etcd/etcd_message.h"

namespace sluice::test {

// An etcd that understands the requests of etcd_message.h.
class FakeEtcd {
 public:
  explicit FakeEtcd(const Clock& clock) : clock_(clock) {}

  // As after a loss of its disk.
  void forget() {
    keys_.clear();
    leases_.clear();
  }

  static constexpr std::size_t kMaxRequest = std::size_t{1536} << 10;  // etcd's default

  Result<std::string> handle(const EtcdCall& call);

  std::map<std::string, std::string> values() const {
    std::map<std::string, std::string> values;
    for (const auto& [key, entry] : keys_) values[key] = entry.value;
    return values;
  }

 private:
  struct Lease {
    std::int64_t ttl_s = 0;
    TimePoint ends{};
  };
  struct Entry {
    std::string value;
    std::int64_t lease = 0;
  };
  class Answers;  // to ranges and transactions

  void expire();

  const Clock& clock_;
  std::map<std::string, Entry> keys_;
  std::map<std::int64_t, Lease> leases_;
  std::int64_t ids_ = 0;
  std::int64_t revision_ = 1;
};

// Calls that arrive, and are answered, when the test says so.
class Wire final : public EtcdCalls {
 public:
  struct Call {
    EtcdCall call;
    Done done;
  };
  void call(const EtcdCall& call, Done done) override { calls.push_back({call, std::move(done)}); }
  std::deque<Call> calls;
};

}  // namespace sluice::test
