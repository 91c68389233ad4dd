#include "coordinator/coordinator_state.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "lending/lending_records_json.h"

namespace sluice {
namespace {

constexpr const char* kSettled = "settled";

}  // namespace

CoordinatorState::CoordinatorState(LendingOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), book_(LendingBook(options_, clock.now())) {}

CoordinatorState::CoordinatorState(LendingOptions options, const Clock& clock, EtcdCalls& calls,
                                   EtcdLeaderOptions etcd)
    : options_(std::move(options)),
      clock_(clock),
      leader_(std::make_unique<EtcdLeader>(std::move(etcd), calls, clock,
                                           static_cast<EtcdLeader::Listener&>(*this))) {}

LendingBook* CoordinatorState::book() {
  if (leader_ && !leader_->leads()) return nullptr;
  return book_ ? &*book_ : nullptr;
}

std::string CoordinatorState::cause() const {
  if (leader_ && !leader_->cause().empty()) return leader_->cause();
  return cause_.empty() ? "another coordinator leads, or this one is about to" : cause_;
}

void CoordinatorState::store(std::function<void(bool stored)> done) {
  if (!book_) return done(false);
  LendingChanges taken = book_->take_changes();
  if (!leader_) return done(true);
  std::vector<EtcdChange> changes;
  for (auto& [key, value] : stored_records(taken)) {
    changes.push_back({std::move(key), std::move(value)});
  }
  if (book_->settled() && !settled_stored_) {
    settled_stored_ = true;
    changes.push_back({kSettled, "1"});
  }
  // A look must not show what is not stored yet, nor come from a leader of the past.
  if (changes.empty() && leader_->idle()) return done(leader_->leads());
  const std::uint64_t id = next_wait_++;
  waiting_[id] = std::move(done);
  const bool looks = changes.empty();
  leader_->write(std::move(changes), [this, id, looks] {
    const auto found = waiting_.extract(id);
    if (!found.empty()) found.mapped()(!looks || leader_->leads());
  });
}

void CoordinatorState::tick() {
  if (leader_) leader_->tick();
  tell();
  if (LendingBook* const present = book()) {
    present->advance(clock_.now());
    store([](bool) {});
  }
}

void CoordinatorState::tell() {
  if (!leader_ || book_ || leader_->cause().empty() || leader_->cause() == told_cause_) return;
  const TimePoint now = clock_.now();
  if (!told_cause_.empty() && now - told_at_ < kTellPause) return;
  told_cause_ = leader_->cause();
  told_at_ = now;
  log_warning(
      fmt::format("etcd: this coordinator lends nothing until etcd answers: {}", told_cause_));
}

std::optional<EtcdCall> CoordinatorState::resign() {
  if (!leader_) return std::nullopt;
  auto call = leader_->resign();
  on_lost("it ends");
  return call;
}

// Epochs of this leader begin at its own, which is a revision of etcd: those of earlier leaders are
// smaller.
void CoordinatorState::on_lead(std::int64_t epoch, std::vector<EtcdPair> state) {
  LendingRecords records;
  settled_stored_ = false;
  for (const EtcdPair& pair : state) {
    if (pair.key == kSettled) {
      settled_stored_ = true;
      continue;
    }
    const Status read = read_stored_record(pair.key, pair.value, records);
    if (!read) {
      // Without it memory could be lent twice: all parties have to say what they hold.
      log_error(fmt::format("etcd: {}; nothing is granted for one expiry", read.error().message));
      settled_stored_ = false;
      break;
    }
  }
  LendingOptions options = options_;
  options.first_epoch = (static_cast<std::uint64_t>(epoch) << 20) + 1;
  book_.emplace(std::move(options), clock_.now(), records, settled_stored_);
  cause_.clear();
  told_cause_.clear();
  log_info(fmt::format("etcd: this coordinator leads, with {} parties", records.parties.size()));
}

void CoordinatorState::on_lost(const std::string& cause) {
  if (book_) log_warning(fmt::format("etcd: this coordinator leads no more: {}", cause));
  book_.reset();
  cause_ = cause;
  for (const auto& [id, done] : std::exchange(waiting_, {})) done(false);
}

}  // namespace sluice
