#include "etcd/lease_keeper.h"

#include <utility>

#include "base/check.h"
#include "etcd/etcd_message.h"

namespace sluice {

LeaseKeeper::LeaseKeeper(std::int64_t ttl_s, EtcdCalls& etcd, const Clock& clock, Calls calls)
    : ttl_s_(ttl_s), etcd_(etcd), clock_(clock), calls_(std::move(calls)) {
  CHECK(ttl_s_ > 0);
}

void LeaseKeeper::adopt(std::int64_t id, TimePoint ends) {
  id_ = id;
  ends_ = ends;
}

void LeaseKeeper::tick() {
  if (released_) return;
  if (id_ != 0 && !is_valid()) end("its lease has ended");
  const TimePoint now = clock_.now();
  if (asking_ || now < renew_at_) return;
  asking_ = true;
  etcd_.call(
      id_ == 0 ? etcd_grant(ttl_s_) : etcd_keep_alive(id_),
      [this, asked = id_, now](const Result<std::string>& body) { answered(asked, now, body); });
}

void LeaseKeeper::answered(std::int64_t asked, TimePoint sent, const Result<std::string>& body) {
  asking_ = false;
  renew_at_ = clock_.now() + kRetry;
  // A lease that was dropped must end with all that is bound to it.
  if (released_ || asked != id_) return;
  const auto lease =
      body ? parse_etcd_lease(*body) : Result<EtcdLease>(tl::unexpected(body.error()));
  if (!lease) return calls_.failed(lease.error().message);
  if (asked != 0 && lease->id != asked) {
    return calls_.failed("etcd's answer is about another lease");
  }
  if (lease->ttl_s == 0) return end("etcd has ended its lease");
  id_ = lease->id;
  ends_ = sent + std::chrono::seconds(lease->ttl_s);
  renew_at_ = sent + std::chrono::milliseconds(lease->ttl_s * 1000 / 3);
}

void LeaseKeeper::end(const std::string& cause) {
  drop(Duration(0));
  calls_.ended(cause);
}

void LeaseKeeper::drop(Duration pause) {
  id_ = 0;
  renew_at_ = clock_.now() + pause;
}

std::int64_t LeaseKeeper::release() {
  released_ = true;
  return std::exchange(id_, 0);
}

}  // namespace sluice
