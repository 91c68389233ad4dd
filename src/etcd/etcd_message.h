// The messages of etcd's JSON gateway (etcd 3.4 or later, paths under /v3), as far as leases,
// ranges of keys and guarded transactions need them:
// https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/. Keys and values are bytes. Answers are
// checked; errors say what is wrong with them. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

inline constexpr std::size_t kMaxEtcdBody = std::size_t{8} << 20;
// Times and revisions of an answer, so that sums with them do not overflow.
inline constexpr std::int64_t kMaxEtcdTtlSeconds = 86'400;
inline constexpr std::int64_t kMaxEtcdRevision = std::int64_t{1} << 42;

// A request: POST `body` to `path`.
struct EtcdCall {
  std::string path;
  std::string body;
};

struct EtcdPair {
  std::string key;
  std::string value;
  std::int64_t create_revision = 0;
  std::int64_t mod_revision = 0;
  friend bool operator==(const EtcdPair&, const EtcdPair&) = default;
};

struct EtcdChange {
  std::string key;
  std::optional<std::string> value;  // absent: the key is deleted
};

// All comparisons must hold for `changes` to be made; else nothing changes. `reads` are answered in
// either case, before the changes.
struct EtcdTransaction {
  std::vector<std::string> absent;  // these keys must not exist
  std::vector<EtcdPair> equal;      // these must have this value; revisions are not looked at
  std::vector<std::string> reads;
  std::vector<EtcdChange> changes;
  std::int64_t lease = 0;  // of `leased`
  std::vector<EtcdChange> leased;
};

struct EtcdLease {
  std::int64_t id = 0;
  std::int64_t ttl_s = 0;  // 0: it has ended
};

struct EtcdRange {
  std::int64_t revision = 0;  // of the store
  std::vector<EtcdPair> pairs;
  bool more = false;
};

struct EtcdOutcome {
  bool succeeded = false;
  std::int64_t revision = 0;
  std::vector<EtcdPair> pairs;  // of `reads` that exist
};

EtcdCall etcd_grant(std::int64_t ttl_s);
EtcdCall etcd_keep_alive(std::int64_t lease);
EtcdCall etcd_revoke(std::int64_t lease);
// Keys that begin with `prefix`, in order, after the key `after` (empty: from the first).
EtcdCall etcd_range(std::string_view prefix, std::string_view after, std::int64_t limit);
// Keys from `from` on and before `end`, in order.
EtcdCall etcd_range_between(std::string_view from, std::string_view end, std::int64_t limit);
EtcdCall etcd_transaction(const EtcdTransaction& transaction);

// The answer to a grant or a renewal.
Result<EtcdLease> parse_etcd_lease(std::string_view body);
Result<EtcdRange> parse_etcd_range(std::string_view body);
Result<EtcdOutcome> parse_etcd_outcome(std::string_view body);
// The cause that an answer with a status other than 200 gives.
std::string etcd_error_text(int status, std::string_view body);

}  // namespace sluice
