// UsagePublisher: puts a gateway's rows of usage into etcd, for the other gateways of its group. It
// writes the parts (usage_part.h) whose rows have changed, and when that was. It writes only while
// the gateway's name is this process's, as GatewayGroup does.
// Owner: GroupUsage. One thread; publish() blocks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include "base/result.h"
#include "etcd/etcd_message.h"
#include "gateway_group/usage_part.h"

namespace sluice {

struct UsagePublisherOptions {
  std::string prefix;
  std::string name;     // of the gateway
  std::string process;  // that has the name
  std::string store;    // UsageStore::id()
};

class UsagePublisher {
 public:
  // One write to etcd has at most so many parts, and no more of them once it has so many bytes.
  // etcd takes 128 changes and 1.5 MiB.
  static constexpr std::size_t kMaxParts = 64;
  static constexpr std::size_t kFullBytes = std::size_t{256} << 10;

  // Sends a call to etcd and waits for the body of its answer.
  using Ask = std::function<Result<std::string>(const EtcdCall&)>;

  explicit UsagePublisher(UsagePublisherOptions options) : options_(std::move(options)) {}

  // Rows replace those of the same day, tenant and function.
  void add(std::span<const UsageRow> rows);
  // Writes all that etcd lacks. After an error a later call writes the rest.
  Status publish(const Ask& ask, std::int64_t unix_seconds);

 private:
  // Writes some parts and takes them from `changed_`.
  Status publish_some(const Ask& ask, std::int64_t unix_seconds);

  const UsagePublisherOptions options_;
  std::map<UsagePartKey, UsagePartRows> parts_;
  std::set<UsagePartKey> changed_;
  std::set<UsagePartKey> too_large_;  // as logged
  bool was_written_ = false;
};

}  // namespace sluice
