#include "lending/page_offer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace sluice {

PageOffer::PageOffer(PageOfferOptions options)
    : options_(std::move(options)), messages_(options_.party, options_.key_prefix) {}

void PageOffer::update(TimePoint now, std::int64_t target, std::int64_t backed) {
  CHECK(target >= 0 && backed >= 0);
  if (target < target_) wanted_until_ = now + kGrace;
  target_ = target;
  backed_ = backed;
  if (joined_ && now - *answered_ >= expiry_ / 2) {
    joined_ = false;
    // A message from before is of no use to a coordinator that lets the party join anew.
    epoch_ = 0;
    holders_.clear();
    recalls_.clear();
  }
  cut();
}

// Shrinks the largest grants by what the lender wants back and the coordinator does not recall yet.
void PageOffer::cut() {
  std::int64_t granted = 0;
  for (const LeaseHolder& holder : holders_) granted += holder.bytes;
  if (granted <= target_) return;
  for (auto& [party, until] : recalls_) until = std::min(until, wanted_until_);
  std::vector<LeaseHolder*> largest;
  for (LeaseHolder& holder : holders_) largest.push_back(&holder);
  std::ranges::stable_sort(largest, std::greater(),
                           [](const auto* holder) { return holder->bytes; });
  std::int64_t excess = kept() - target_;
  for (LeaseHolder* holder : largest) {
    const std::int64_t part = std::clamp<std::int64_t>(excess, 0, holder->keep);
    if (part == 0) continue;
    holder->keep -= part;
    excess -= part;
    TimePoint& until = recalls_.emplace(holder->party, wanted_until_).first->second;
    until = std::min(until, wanted_until_);
  }
}

std::vector<PageGrant> PageOffer::grants() const {
  std::vector<PageGrant> grants;
  if (!joined_) return grants;
  for (const LeaseHolder& holder : holders_) {
    const auto recall = recalls_.find(holder.party);
    grants.push_back({holder.party, holder.bytes, holder.keep,
                      recall == recalls_.end() ? TimePoint{} : recall->second});
  }
  return grants;
}

std::int64_t PageOffer::kept() const {
  std::int64_t sum = 0;
  for (const LeaseHolder& holder : holders_) sum += holder.keep;
  return sum;
}

// The memory of a holder that did not answer in time is the lender's again. Not before all of it
// is: what the coordinator hears of must be so.
bool PageOffer::is_overdue(TimePoint now) const {
  if (backed_ > kept()) return false;
  return std::ranges::any_of(recalls_, [&](const auto& recall) { return now >= recall.second; });
}

std::optional<LendRequest> PageOffer::next(TimePoint now) {
  if (fenced_ || (in_flight_ && !repeat_)) return std::nullopt;
  if (repeat_ && now < next_heartbeat_) return std::nullopt;
  std::vector<LeaseBytes> offered;
  if (target_ > 0) offered = {{kLease, target_}};
  if (std::exchange(repeat_, false)) {
    const bool stale =
        in_flight_->verb == LendVerb::kJoin ? in_flight_->leases != offered : epoch_ == 0;
    if (!stale) {
      sent_ = now;
      return in_flight_;
    }
  }
  in_flight_.reset();
  if (epoch_ == 0) {
    if (now < next_heartbeat_) return std::nullopt;
    in_flight_ = messages_.begin(LendVerb::kJoin, epoch_);
    in_flight_->device = options_.device;
    in_flight_->kind = LendKind::kPages;
    in_flight_->socket = options_.socket;
    in_flight_->leases = std::move(offered);
  } else if (target_ != booked_) {
    in_flight_ = messages_.begin(target_ > booked_ ? LendVerb::kLease : LendVerb::kReclaim, epoch_);
    in_flight_->lease = kLease;
    in_flight_->bytes = target_ > booked_ ? target_ : booked_ - target_;
  } else if (is_overdue(now)) {
    in_flight_ = messages_.begin(LendVerb::kRevoke, epoch_);
    in_flight_->lease = kLease;
    ++revoked_;
  } else if (now >= next_heartbeat_ || !recalls_.empty()) {
    in_flight_ = messages_.begin(LendVerb::kHeartbeat, epoch_);
    in_flight_->key.clear();
  }
  if (!in_flight_) return std::nullopt;
  sent_ = now;
  next_heartbeat_ = now + kHeartbeat;
  return in_flight_;
}

void PageOffer::answer(TimePoint now, const LendAnswer& answer) {
  CHECK(in_flight_ && !repeat_);
  const LendRequest sent = *std::exchange(in_flight_, std::nullopt);
  if (answer.fault == LendFault::kStaleEpoch) {
    fenced_ = true;
  }
  if (answer.fault != LendFault::kNone) {
    // It has forgotten the party or the lease, or cannot take them. The next join presents them.
    epoch_ = 0;
    joined_ = false;
    holders_.clear();
    recalls_.clear();
    return;
  }
  if (sent.verb != LendVerb::kJoin && epoch_ == 0) return;  // it came too late
  take(now, answer.reply);
}

void PageOffer::take(TimePoint now, const LendReply& reply) {
  answered_ = sent_;
  epoch_ = reply.epoch;
  expiry_ = reply.expiry;
  joined_ = true;
  booked_ = 0;
  holders_.clear();
  for (const LeaseView& lease : reply.leases) {
    if (lease.lease != options_.party + "/" + kLease) continue;
    booked_ = lease.bytes - lease.wanted_back;
    holders_ = lease.holders;
  }
  std::map<std::string, TimePoint> before = std::exchange(recalls_, {});
  for (const LeaseHolder& holder : holders_) {
    if (holder.keep == holder.bytes) continue;
    const auto had = before.find(holder.party);
    const TimePoint until = had == before.end() ? now + kGrace : had->second;
    recalls_[holder.party] = until;
  }
  cut();
}

void PageOffer::failed(TimePoint now) {
  CHECK(in_flight_ && !repeat_);
  repeat_ = true;
  next_heartbeat_ = now + kRetry;
}

}  // namespace sluice
