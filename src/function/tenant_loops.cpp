#include "function/tenant_loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "function/append_batch.h"
#include "function/gauge_sums.h"

namespace sluice {
namespace {

// How often the thread looks for loops to end when nothing wakes it.
constexpr Duration kLongestCheck = std::chrono::seconds(1);

}  // namespace

TenantLoops::TenantLoops(Options options, const Clock& clock, std::function<void()> wake)
    : options_(options), clock_(clock), wake_(std::move(wake)) {}

TenantLoops::~TenantLoops() { stop(); }

void TenantLoops::start(std::function<Result<MakeLoop>()> load) {
  thread_ = std::thread([this, load = std::move(load)] { run(load); });
}

void TenantLoops::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  news_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  // Loops take the lock when they wake, so they end without it.
  Functions functions;
  {
    const std::lock_guard lock(mutex_);
    functions.swap(functions_);
    pending_.clear();
    if (state_ != EngineState::kFailed) state_ = EngineState::kStopped;
  }
  functions.clear();
  wake_();
}

void TenantLoops::run(const std::function<Result<MakeLoop>()>& load) {
  if (auto made = load(); !made) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(made).error();
    state_ = EngineState::kFailed;
  } else {
    const std::lock_guard lock(mutex_);
    make_ = *std::move(made);
    if (state_ == EngineState::kLoading) state_ = EngineState::kReady;
  }
  wake_();
  const auto check = std::min(kLongestCheck, options_.idle);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    end_unused(clock_.now());
    auto ending = std::exchange(ending_, {});
    if (!ending.empty()) {
      lock.unlock();
      ending.clear();
      wake_();
      lock.lock();
      ending_kv_ = 0;
      for (const auto& loop : ending_) ending_kv_ += loop->kv().held;
    }
    if (!stopping_ && !woken_) news_.wait_for(lock, check);
    woken_ = false;
  }
}

void TenantLoops::loop_woke() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  news_.notify_all();
  wake_();
}

void TenantLoops::end_unused(TimePoint now) {
  for (auto it = functions_.begin(); it != functions_.end();) {
    Function& function = it->second;
    const bool used = function.loop->unfinished_requests() > 0;
    if (used) function.last_use = now;
    const bool unused = !used && now - function.last_use >= options_.idle;
    it = unused || has_failed(function) ? retire(it) : std::next(it);
  }
}

// Not before it has reported the ends of its requests.
bool TenantLoops::has_failed(const Function& function) {
  return function.loop->state() == EngineState::kFailed &&
         function.loop->unfinished_requests() == 0;
}

// Keeps all that the loop has reported.
TenantLoops::Functions::iterator TenantLoops::retire(Functions::iterator function) {
  collect(function->second);
  add_totals(function->second.gauges, ended_);
  ending_kv_ += function->second.loop->kv().held;
  ending_.push_back(std::move(function->second.loop));
  return functions_.erase(function);
}

void TenantLoops::collect(Function& function) {
  function.loop->take(scratch_);
  // The totals of a new process begin at zero.
  if (scratch_.gauges.totals.steps < function.gauges.totals.steps) {
    add_totals(function.gauges, ended_);
  }
  function.gauges = scratch_.gauges;
  if (std::exchange(scratch_.has_progress, false) && std::exchange(function.asked, false)) {
    progress_.insert(progress_.end(), scratch_.progress.begin(), scratch_.progress.end());
  }
  append_batch(std::move(scratch_), pending_);
}

// For one more loop of `tenant`.
bool TenantLoops::make_room(const std::string& tenant) {
  std::map<std::string_view, std::int32_t> counts;
  for (const auto& [key, function] : functions_) ++counts[key.tenant];
  const std::int32_t wanted = ++counts[tenant];
  auto victim = functions_.end();
  std::int32_t most = 0;
  for (auto it = functions_.begin(); it != functions_.end(); ++it) {
    const Function& function = it->second;
    const std::int32_t count = counts[it->first.tenant];
    if (function.loop->unfinished_requests() > 0 || count < std::max(wanted, most)) continue;
    if (count == most && function.last_use >= victim->second.last_use) continue;
    victim = it;
    most = count;
  }
  if (victim == functions_.end()) return false;
  retire(victim);
  woken_ = true;
  news_.notify_all();
  return true;
}

Result<TenantLoops::Function*> TenantLoops::function_of(const Key& key) {
  const auto found = functions_.find(key);
  if (found != functions_.end() && !has_failed(found->second)) return &found->second;
  if (found != functions_.end()) retire(found);
  if (is_full() && !make_room(key.tenant)) {
    return resource_exhausted(
        fmt::format("there are {} function processes, and none is idle that this call may replace; "
                    "try again later, or start the server with a larger --max-functions",
                    options_.max_loops));
  }
  Function& function = functions_[key];
  function.loop = make_(key.adapter, [this] { loop_woke(); });
  function.number = ++next_number_;
  function.loop->set_tenant(key.tenant);
  if (options_.first_kv_limit > 0) function.loop->limit_kv(options_.first_kv_limit);
  // A loop wakes once for all that is not taken, and this one may have run before.
  collect(function);
  return &function;
}

Status TenantLoops::submit(Request request) {
  const std::lock_guard lock(mutex_);
  if (state_ != EngineState::kReady) {
    return unavailable("no function process can start: the server loads, has failed or stops");
  }
  const std::int32_t unfinished = count_unfinished();
  if (unfinished >= options_.max_requests) {
    return resource_exhausted(fmt::format("the queue is full: {} requests run or wait, at most {}",
                                          unfinished, options_.max_requests));
  }
  ASSIGN_OR_RETURN(
      Function* const function,
      function_of({options_.by_key ? request.client_key : std::string(), request.adapter}));
  function->last_use = clock_.now();
  return function->loop->submit(std::move(request));
}

// A loop ignores what it does not have.
void TenantLoops::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, function] : functions_) function.loop->cancel(id);
}

void TenantLoops::end_choice(RequestId id, std::int32_t choice, FinishReason reason) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, function] : functions_) function.loop->end_choice(id, choice, reason);
}

void TenantLoops::ask_progress() {
  {
    const std::lock_guard lock(mutex_);
    progress_wanted_ = true;
    progress_.clear();
    for (auto& [key, function] : functions_) {
      if (function.loop->state() != EngineState::kReady) continue;
      function.asked = true;
      function.loop->ask_progress();
    }
  }
  wake_();  // no loop may answer
}

void TenantLoops::take(OutputBatch& batch) {
  batch.clear();
  const std::lock_guard lock(mutex_);
  for (auto& [key, function] : functions_) collect(function);
  std::swap(batch, pending_);
  batch.gauges = ended_;
  for (const auto& [key, function] : functions_) add_gauges(function.gauges, batch.gauges);
  const bool asked =
      std::ranges::any_of(functions_, [](const auto& one) { return one.second.asked; });
  if (asked || !progress_wanted_) return;
  progress_wanted_ = false;
  batch.has_progress = true;
  batch.progress = std::exchange(progress_, {});
}

std::vector<TenantLoops::Kv> TenantLoops::kv(std::int64_t& ending) const {
  const std::lock_guard lock(mutex_);
  std::vector<Kv> all;
  all.reserve(functions_.size());
  for (const auto& [key, function] : functions_) {
    all.push_back({function.number, function.loop->kv()});
  }
  ending = ending_kv_;
  return all;
}

void TenantLoops::limit_kv(std::uint64_t loop, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, function] : functions_) {
    if (function.number == loop) function.loop->limit_kv(bytes);
  }
}

EngineState TenantLoops::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::optional<Error> TenantLoops::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::int32_t TenantLoops::unfinished_requests() const {
  const std::lock_guard lock(mutex_);
  return count_unfinished();
}

std::int32_t TenantLoops::count_unfinished() const {
  std::int32_t sum = 0;
  for (const auto& [key, function] : functions_) sum += function.loop->unfinished_requests();
  return sum;
}

}  // namespace sluice
