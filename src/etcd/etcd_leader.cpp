#include "etcd/etcd_leader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

std::size_t size_of(const std::string& key, const std::optional<std::string>& value) {
  return key.size() + (value ? value->size() : 0);
}

}  // namespace

EtcdLeader::EtcdLeader(EtcdLeaderOptions options, EtcdCalls& calls, const Clock& clock,
                       Listener& listener)
    : options_(std::move(options)),
      calls_(calls),
      clock_(clock),
      listener_(listener),
      lease_(options_.ttl_s, calls, clock,
             {.failed = [this](const std::string& cause) { fail(cause); },
              .ended = [this](const std::string& cause) { lose(cause); }}) {
  CHECK(!options_.prefix.empty() && !options_.name.empty());
}

bool EtcdLeader::leads() const { return phase_ == Phase::kLeads && lease_.is_valid(); }

std::string EtcdLeader::commit(std::uint64_t number) const {
  return fmt::format("{}.{}:{}", options_.name, term_, number);
}

void EtcdLeader::tick() {
  if (phase_ == Phase::kResigned) return;
  lease_.tick();
  // An etcd that is full renews leases and refuses writes. Callers must not wait for it.
  if (tried_ && clock_.now() - tried_since_ > kPatience * std::chrono::seconds(options_.ttl_s)) {
    lose("etcd does not store a write");
  }
  if (!lease_.is_valid() || calling_ || clock_.now() < next_try_) return;
  switch (phase_) {
    case Phase::kFollows: return campaign();
    case Phase::kReads: return read();
    case Phase::kLeads: return flush();
    case Phase::kResigned: return;
  }
}

void EtcdLeader::fail(const std::string& cause) {
  cause_ = cause;
  next_try_ = clock_.now() + kRetry;
}

void EtcdLeader::lose(const std::string& cause) {
  lease_.drop(Duration(0));
  const bool led = phase_ == Phase::kLeads;
  phase_ = Phase::kFollows;
  calling_ = false;  // answers of an earlier term are not looked at
  ++term_;
  state_.clear();
  queue_.clear();
  tried_ = false;
  if (led) listener_.on_lost(cause_.empty() ? cause : cause + "; " + cause_);
}

// The term is new for each attempt, so a late copy of an earlier attempt is no commit of this one.
// Such a copy may still make the leader key, with a lease that nothing renews: it then ends.
void EtcdLeader::campaign() {
  ++term_;
  EtcdTransaction transaction;
  transaction.absent = {options_.prefix + "/leader"};
  transaction.changes = {{options_.prefix + "/commit", commit(0)}};
  transaction.lease = lease_.id();
  transaction.leased = {{options_.prefix + "/leader", options_.name}};
  calling_ = true;
  calls_.call(etcd_transaction(transaction), [this, term = term_](const Result<std::string>& body) {
    if (term == term_ && phase_ == Phase::kFollows) campaign_answered(body);
  });
}

void EtcdLeader::campaign_answered(const Result<std::string>& body) {
  calling_ = false;
  const auto outcome =
      body ? parse_etcd_outcome(*body) : Result<EtcdOutcome>(tl::unexpected(body.error()));
  if (!outcome) {
    // The key may have been made. With another lease it ends by itself.
    fail(outcome.error().message);
    lease_.drop(kRetry);
    return;
  }
  next_try_ = clock_.now() + kRetry;
  cause_.clear();
  if (!outcome->succeeded) return;  // another process leads
  phase_ = Phase::kReads;
  epoch_ = outcome->revision;
  commits_ = 0;
  state_.clear();
  read();
}

void EtcdLeader::read() {
  const std::string after = state_.empty() ? "" : options_.prefix + "/state/" + state_.back().key;
  calling_ = true;
  calls_.call(etcd_range(options_.prefix + "/state/", after, page_),
              [this, term = term_](const Result<std::string>& body) {
                if (term == term_ && phase_ == Phase::kReads) read_answered(body);
              });
}

void EtcdLeader::read_answered(const Result<std::string>& body) {
  calling_ = false;
  if (body && body->size() > kMaxEtcdBody && page_ > 1) {
    page_ /= 2;
    return read();
  }
  auto range = body ? parse_etcd_range(*body) : Result<EtcdRange>(tl::unexpected(body.error()));
  if (!range) return fail(range.error().message);
  const std::string folder = options_.prefix + "/state/";
  for (EtcdPair& pair : range->pairs) {
    if (!pair.key.starts_with(folder)) {
      return fail(fmt::format("etcd's answer has a key that is not below {}", folder));
    }
    pair.key.erase(0, folder.size());
    state_.push_back(std::move(pair));
  }
  if (range->more) return read();
  if (!lease_.is_valid()) return;  // tick() sees to it
  phase_ = Phase::kLeads;
  listener_.on_lead(epoch_, std::exchange(state_, {}));
}

bool EtcdLeader::Write::has_room_for(const EtcdChange& change) const {
  if (changes.empty()) return true;
  if (changes.size() >= kMaxChanges && !changes.contains(change.key)) return false;
  return bytes + size_of(change.key, change.value) <= kMaxChangedBytes;
}

void EtcdLeader::Write::add(EtcdChange change) {
  bytes += size_of(change.key, change.value);
  const auto [found, is_new] = changes.try_emplace(std::move(change.key));
  if (!is_new) bytes -= size_of(found->first, found->second);
  found->second = std::move(change.value);
}

void EtcdLeader::write(std::vector<EtcdChange> changes, std::function<void()> stored) {
  CHECK(phase_ == Phase::kLeads);
  // Nothing to store: it waits for what is under way, not for a transaction of its own.
  if (changes.empty() && !queue_.empty()) {
    queue_.back().stored.push_back(std::move(stored));
    return;
  }
  // A write that was sent must not change: etcd may have it, and a repeat would be taken for it.
  const std::size_t open = tried_ ? 1 : 0;
  if (queue_.size() <= open) queue_.emplace_back();
  for (EtcdChange& change : changes) {
    if (!queue_.back().has_room_for(change)) queue_.emplace_back();
    queue_.back().add(std::move(change));
  }
  queue_.back().stored.push_back(std::move(stored));
  if (!calling_ && clock_.now() >= next_try_) flush();
}

void EtcdLeader::flush() {
  if (queue_.empty()) return;
  EtcdTransaction transaction;
  const std::string key = options_.prefix + "/commit";
  transaction.equal = {{key, commit(commits_), 0, 0}};
  transaction.reads = {key};
  for (const auto& [name, value] : queue_.front().changes) {
    transaction.changes.push_back({options_.prefix + "/state/" + name, value});
  }
  transaction.changes.push_back({key, commit(commits_ + 1)});
  calling_ = true;
  if (!std::exchange(tried_, true)) tried_since_ = clock_.now();
  calls_.call(etcd_transaction(transaction), [this, term = term_](const Result<std::string>& body) {
    if (term == term_ && phase_ == Phase::kLeads) flush_answered(term, body);
  });
}

void EtcdLeader::flush_answered(std::uint64_t term, const Result<std::string>& body) {
  calling_ = false;
  const auto outcome =
      body ? parse_etcd_outcome(*body) : Result<EtcdOutcome>(tl::unexpected(body.error()));
  if (!outcome) return fail(outcome.error().message);
  // A repeat of a write whose answer was lost finds its own commit.
  const bool was_there = !outcome->succeeded && outcome->pairs.size() == 1 &&
                         outcome->pairs[0].value == commit(commits_ + 1);
  if (!outcome->succeeded && !was_there) return lose("another process has become the leader");
  ++commits_;
  cause_.clear();
  const std::vector<std::function<void()>> stored = std::move(queue_.front().stored);
  queue_.pop_front();
  tried_ = false;
  if (!queue_.empty()) flush();
  for (const auto& done : stored) {
    done();
    if (term != term_) return;  // leadership was lost meanwhile
  }
}

std::optional<EtcdCall> EtcdLeader::resign() {
  const std::int64_t lease = lease_.release();
  phase_ = Phase::kResigned;
  queue_.clear();
  if (lease == 0) return std::nullopt;
  return etcd_revoke(lease);
}

}  // namespace sluice
