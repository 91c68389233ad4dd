#include "server/threaded_engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/spin.h"
#include "base/thread_pool.h"
#include "server/output_batch.h"

namespace sluice {
namespace {

// Between two steps the engine accepts at least one new request and at most about this many prompt
// tokens, so that a burst of long prompts does not stall running streams.
constexpr std::int64_t kTokensTakenPerStep = 65536;
constexpr Duration kFlushTime = std::chrono::seconds(5);  // of the tier below, at the end
// The consumer is woken so often at most for gauges alone.
constexpr Duration kGaugesEvery = std::chrono::milliseconds(100);

struct Submission {
  Request request;
  bool cancelled = false;
};

struct EndedChoice {
  RequestId request = 0;
  std::int32_t choice = 0;
  FinishReason reason = FinishReason::kNone;
};

bool is_operators(RequestId id) { return id >= kFirstOperatorId; }

}  // namespace

struct ThreadedEngineLoop::Impl {
  using Make = std::function<Result<std::unique_ptr<Engine>>()>;

  Impl(const Options& loop_options, const Clock& loop_clock, std::function<void()> loop_wake,
       WhenIdle loop_when_idle, StepGate* loop_gate)
      : options(loop_options),
        clock(loop_clock),
        wake(std::move(loop_wake)),
        gate(loop_gate),
        when_idle(std::move(loop_when_idle)) {}

  // Any thread; REQUIRES: the caller holds `mutex`.
  std::size_t num_unfinished() const { return inbox.size() + num_taken; }
  bool has_mail() const {
    return stopping || progress_wanted || !inbox.empty() || !cancels.empty() || !ended.empty() ||
           !pin_questions.empty() || kv_limit;
  }
  Status check_runs() const;
  Status may_submit() const;
  void await_announced() const;  // without `mutex`

  // The engine's thread.
  void run(const Make& make);
  bool wait_and_take();
  bool wait_for_mail(std::unique_lock<std::mutex>& lock, bool busy);
  std::optional<TimePoint> wake_at() const;
  bool is_due(std::optional<TimePoint> time) const { return time && *time <= taken_at; }
  TimePoint idle_call_at() const;
  Status call_when_idle();
  void take_submissions();
  void apply_taken();
  std::int32_t blocks_of(std::int64_t bytes) const;
  Status step();
  void announce();
  void publish(std::span<const ChoiceOutput> outputs, const StepRecord* record);
  bool gauges_are_news(TimePoint now) const;
  void set_ready();
  void fail(Error error);
  void shut_down();
  bool answer_progress();
  void answer_pins();

  const Options options;
  const Clock& clock;
  const std::function<void()> wake;
  StepGate* const gate;

  mutable std::mutex mutex;
  std::condition_variable mail;
  // Guarded by `mutex`: the input...
  std::deque<Submission> inbox;
  std::vector<RequestId> cancels;
  std::vector<EndedChoice> ended;
  std::vector<PinQuestion> pin_questions;
  std::optional<std::int64_t> kv_limit;  // new; in bytes
  bool progress_wanted = false;
  bool stopping = false;
  // ... and the output.
  EngineState state = EngineState::kLoading;
  std::optional<Error> failure;
  bool has_prefix_cache = true;  // until the engine is there
  std::size_t num_taken = 0;     // requests taken out of the inbox and not finished
  OutputBatch pending;
  EngineGauges gauges;
  EngineGauges told;    // the gauges when `wake` was called last
  TimePoint told_at{};  // and when that was
  bool woken = false;   // `wake` was called for `pending`

  // A step is being committed, and `wake` was called for it.
  std::atomic<bool> announced = false;
  // On a single core, a thread that spins until the commit would delay it.
  const bool may_announce = available_cpus() > 1;

  // The engine's thread only.
  std::unique_ptr<Engine> engine;
  std::vector<Submission> taken;
  std::vector<RequestId> taken_cancels;
  std::vector<EndedChoice> taken_ended;
  std::vector<PinQuestion> taken_questions;
  std::vector<PinAnswer> pin_answers;
  std::optional<std::int64_t> taken_kv_limit;
  std::vector<RefusedRequest> refused;
  std::vector<PinResult> pin_results;
  WhenIdle when_idle;        // empty once it wants nothing more
  TimePoint next_idle_call;  // not before
  TimePoint last_work{};
  TimePoint taken_at{};  // just before the gate: what comes due later waits for the next look

  std::thread thread;  // the owner's
};

void ThreadedEngineLoop::Impl::run(const Make& make) {
  auto made = make();
  if (!made) return fail(std::move(made).error());
  engine = *std::move(made);
  CHECK(engine != nullptr);
  engine->pins().set_share(options.pin_share);
  set_ready();
  last_work = clock.now();
  while (wait_and_take()) {
    apply_taken();
    if (auto status = call_when_idle(); !status) return fail(std::move(status).error());
    const bool resizes = taken_kv_limit.has_value();
    if (!resizes && !engine->has_work() && !is_due(engine->wake_at())) {
      publish({}, nullptr);
    } else if (auto status = step(); !status) {
      return fail(std::move(status).error());
    } else {
      last_work = clock.now();
    }
    if (gate != nullptr) gate->leave(engine->has_work());
  }
  shut_down();
}

// When the thread has something to do without mail.
std::optional<TimePoint> ThreadedEngineLoop::Impl::wake_at() const {
  const auto due = engine->wake_at();
  if (!when_idle) return due;
  const TimePoint idle = idle_call_at();
  return due ? std::min(*due, idle) : idle;
}

TimePoint ThreadedEngineLoop::Impl::idle_call_at() const {
  return std::max(last_work + kIdle, next_idle_call);
}

Status ThreadedEngineLoop::Impl::call_when_idle() {
  if (!when_idle || engine->has_work() || !is_due(idle_call_at())) return {};
  ASSIGN_OR_RETURN(IdleWork work, when_idle());
  std::optional<Request>& request = work.request;
  if (!request) {
    if (!work.again) when_idle = nullptr;
    next_idle_call = clock.now() + work.again.value_or(Duration(0));
    return {};
  }
  CHECK(is_operators(request->id));
  last_work = clock.now();
  if (const Status added = engine->add_request(*std::move(request)); !added) {
    log_warning(fmt::format("a request of the engine's own cannot run: {}", added.error().message));
  }
  return {};
}

// Sleeps while there is nothing to do. False: stop.
bool ThreadedEngineLoop::Impl::wait_for_mail(std::unique_lock<std::mutex>& lock, bool busy) {
  if (const auto due = wake_at(); !busy && due) {
    mail.wait_for(lock, std::max(*due - clock.now(), Duration(0)), [&] { return has_mail(); });
  } else if (!busy) {
    mail.wait(lock, [&] { return has_mail(); });
  }
  return !stopping;
}

// False: stop. Passes the gate before it takes requests, so that they do not miss the next step.
bool ThreadedEngineLoop::Impl::wait_and_take() {
  const bool busy = engine->has_work();
  std::unique_lock lock(mutex);
  if (!wait_for_mail(lock, busy)) return false;
  taken_at = clock.now();
  if (gate != nullptr && (busy || kv_limit || !inbox.empty() || is_due(wake_at()))) {
    lock.unlock();
    gate->enter();
    lock.lock();
    if (stopping) return false;
  }
  take_submissions();
  taken_cancels.clear();
  taken_cancels.swap(cancels);
  taken_ended.clear();
  taken_ended.swap(ended);
  taken_questions.clear();
  taken_questions.swap(pin_questions);
  taken_kv_limit = std::exchange(kv_limit, std::nullopt);
  return true;
}

void ThreadedEngineLoop::Impl::take_submissions() {
  std::int64_t tokens = 0;
  while (!inbox.empty() && tokens < kTokensTakenPerStep) {
    Submission& next = inbox.front();
    if (!next.cancelled) {
      tokens += static_cast<std::int64_t>(next.request.prompt.size()) * next.request.sampling.n;
    }
    taken.push_back(std::move(next));
    inbox.pop_front();
    ++num_taken;
  }
}

void ThreadedEngineLoop::Impl::apply_taken() {
  if (taken_kv_limit) engine->set_kv_limit(blocks_of(*taken_kv_limit));
  for (Submission& submission : taken) {
    if (submission.cancelled) continue;  // publish() reports it
    const RequestId id = submission.request.id;
    auto status = engine->add_request(std::move(submission.request));
    if (!status) refused.push_back({id, std::move(status).error()});
  }
  for (const RequestId id : taken_cancels) engine->cancel(id);
  for (const EndedChoice& choice : taken_ended) {
    engine->end_choice(choice.request, choice.choice, choice.reason);
  }
  answer_pins();
}

void ThreadedEngineLoop::Impl::answer_pins() {
  PinTable& pins = engine->pins();
  for (const PinQuestion& question : taken_questions) {
    PinAnswer answer;
    answer.ticket = question.ticket;
    if (question.action == PinAction::kList) {
      pins.append_all(question.tenant, answer.pins);
    } else if (auto pin = question.action == PinAction::kShow
                              ? pins.find(question.tenant, question.id)
                              : pins.remove(question.tenant, question.id)) {
      answer.pins.push_back(*std::move(pin));
    }
    pin_answers.push_back(std::move(answer));
  }
}

// In blocks, the null block included; 0: no limit.
std::int32_t ThreadedEngineLoop::Impl::blocks_of(std::int64_t bytes) const {
  if (bytes <= 0) return 0;
  const std::int64_t blocks = bytes / static_cast<std::int64_t>(engine->kv_block_bytes());
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(blocks, 2, engine->kv().options().max_blocks));
}

Status ThreadedEngineLoop::Impl::step() {
  if (gate != nullptr) engine->limit_step(gate->longest_step());
  const EngineStats before = engine->stats();
  const TimePoint start = clock.now();
  ASSIGN_OR_RETURN(const bool computed, engine->compute());
  if (computed) announce();
  const auto outputs = engine->commit();
  StepRecord record;
  record.end = clock.now();
  record.duration = record.end - start;
  record.tokens =
      static_cast<std::int32_t>(engine->stats().computed_tokens - before.computed_tokens);
  publish(outputs, engine->stats().steps > before.steps ? &record : nullptr);
  return {};
}

// Wakes the consumer for the results that publish() adds next.
void ThreadedEngineLoop::Impl::announce() {
  if (!may_announce) return;
  {
    const std::lock_guard lock(mutex);
    if (woken) return;
    woken = true;
    announced.store(true, std::memory_order_release);
  }
  wake();
}

void ThreadedEngineLoop::Impl::publish(std::span<const ChoiceOutput> outputs,
                                       const StepRecord* record) {
  const TimePoint now = record != nullptr ? record->end : clock.now();
  bool news = record != nullptr || !refused.empty() || !pin_answers.empty();
  engine->pins().take_results(pin_results);
  {
    const std::lock_guard lock(mutex);
    for (const Submission& submission : taken) {
      if (!submission.cancelled) continue;
      append_cancelled(submission.request, now, pending);
      news = true;
    }
    for (RefusedRequest& request : refused) pending.refused.push_back(std::move(request));
    for (const ChoiceOutput& output : outputs) {
      if (is_operators(output.request)) continue;
      append_output(output, now, pending);
      news = true;
    }
    for (PinResult& result : pin_results) pending.pins.push_back(std::move(result));
    for (PinAnswer& answer : pin_answers) pending.pin_answers.push_back(std::move(answer));
    if (record != nullptr) pending.steps.push_back(*record);
    gauges = gauges_of(*engine);
    news = news || gauges_are_news(now);
    num_taken = engine->num_requests();
    if (answer_progress()) news = true;
    if (news) {
      told = gauges;
      told_at = now;
    }
    if (woken) news = false;
    if (news) woken = true;
    announced.store(false, std::memory_order_release);
  }
  taken.clear();
  refused.clear();
  pin_results.clear();
  pin_answers.clear();
  if (news) wake();
}

// Whether the gauges alone are worth a wake: a consumer has them by batches only. Saves to a tier
// go on when the last step has ended, and a tier takes blocks again at any time. REQUIRES: the
// caller holds `mutex`.
bool ThreadedEngineLoop::Impl::gauges_are_news(TimePoint now) const {
  if (gauges.kv_limit_blocks != told.kv_limit_blocks ||
      gauges.kv_blocks_backed != told.kv_blocks_backed) {
    return true;
  }
  return (!engine->has_work() || now - told_at >= kGaugesEvery) && gauges != told;
}

// True when progress was requested. REQUIRES: the caller holds `mutex`.
bool ThreadedEngineLoop::Impl::answer_progress() {
  if (!progress_wanted) return false;
  progress_wanted = false;
  pending.has_progress = true;
  pending.progress.clear();
  if (engine != nullptr) engine->append_progress(pending.progress);
  std::erase_if(pending.progress,
                [](const RequestProgress& progress) { return is_operators(progress.request); });
  for (const Submission& submission : inbox) {
    RequestProgress progress;
    progress.request = submission.request.id;
    progress.prompt_tokens = static_cast<std::int32_t>(submission.request.prompt.size());
    progress.waiting = submission.request.sampling.n;
    pending.progress.push_back(progress);
  }
  return true;
}

void ThreadedEngineLoop::Impl::set_ready() {
  {
    const std::lock_guard lock(mutex);
    state = EngineState::kReady;
    has_prefix_cache = engine->kv().options().prefix_caching == PrefixCaching::kOn;
    gauges = told = gauges_of(*engine);
  }
  wake();
}

void ThreadedEngineLoop::Impl::fail(Error error) {
  engine.reset();
  {
    const std::lock_guard lock(mutex);
    state = EngineState::kFailed;
    failure = std::move(error);
    inbox.clear();
    num_taken = 0;
    gauges.running = gauges.waiting = 0;
    gauges.kv_blocks_used = gauges.kv_blocks_cached = 0;
    gauges.pins = 0;
    gauges.pinned_blocks = 0;
    answer_progress();
  }
  wake();
}

// Ends all requests; only the steps in flight still run.
void ThreadedEngineLoop::Impl::shut_down() {
  {
    const std::lock_guard lock(mutex);
    for (Submission& submission : inbox) {
      submission.cancelled = true;
      taken.push_back(std::move(submission));
    }
    inbox.clear();
  }
  engine->cancel_all();
  publish({}, nullptr);
  while (engine->has_work()) {
    if (auto status = step(); !status) return fail(std::move(status).error());
  }
  if (const auto flushed = engine->flush_tier(kFlushTime); !flushed) {
    log_warning("KV blocks below memory may be lost if the machine stops now: " +
                flushed.error().message);
  }
  {
    const std::lock_guard lock(mutex);
    state = EngineState::kStopped;
    answer_progress();
  }
  engine.reset();
  wake();
}

Status ThreadedEngineLoop::Impl::check_runs() const {
  if (state == EngineState::kFailed) return unavailable(failure->message);
  if (stopping) return unavailable("the server is shutting down");
  if (state == EngineState::kLoading) return unavailable("the model is still loading");
  return {};
}

Status ThreadedEngineLoop::Impl::may_submit() const {
  RETURN_IF_ERROR(check_runs());
  if (num_unfinished() < static_cast<std::size_t>(options.max_requests)) return {};
  return resource_exhausted(
      fmt::format("{} requests are unfinished, which is the limit ({} choices run, {} wait, {} "
                  "requests are not queued yet); try again later",
                  num_unfinished(), gauges.running, gauges.waiting, inbox.size()));
}

void ThreadedEngineLoop::Impl::await_announced() const {
  spin_until([this] { return !announced.load(std::memory_order_acquire); }, kCommitPatience);
}

ThreadedEngineLoop::ThreadedEngineLoop(const Options& options, const Clock& clock,
                                       std::function<void()> wake, WhenIdle when_idle,
                                       StepGate* gate)
    : impl_(std::make_unique<Impl>(options, clock, std::move(wake), std::move(when_idle), gate)) {}

ThreadedEngineLoop::~ThreadedEngineLoop() { stop(); }

void ThreadedEngineLoop::start(std::function<Result<std::unique_ptr<Engine>>()> make) {
  CHECK(!impl_->thread.joinable());
  impl_->thread = std::thread([impl = impl_.get(), make = std::move(make)] { impl->run(make); });
}

Status ThreadedEngineLoop::submit(Request request) {
  {
    const std::lock_guard lock(impl_->mutex);
    RETURN_IF_ERROR(impl_->may_submit());
    impl_->inbox.push_back({std::move(request), false});
  }
  impl_->mail.notify_one();
  return {};
}

void ThreadedEngineLoop::cancel(RequestId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->state != EngineState::kReady) return;
    bool waits = false;
    for (Submission& submission : impl_->inbox) {
      if (submission.request.id != id) continue;
      submission.cancelled = waits = true;
      break;
    }
    if (!waits) impl_->cancels.push_back(id);
  }
  impl_->mail.notify_one();
}

void ThreadedEngineLoop::end_choice(RequestId id, std::int32_t choice, FinishReason reason) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->state != EngineState::kReady) return;
    impl_->ended.push_back({id, choice, reason});
  }
  impl_->mail.notify_one();
}

void ThreadedEngineLoop::limit_kv(std::int64_t bytes) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->kv_limit = bytes;
  }
  impl_->mail.notify_one();
}

void ThreadedEngineLoop::ask_progress() {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->state == EngineState::kFailed || impl_->state == EngineState::kStopped) return;
    impl_->progress_wanted = true;
  }
  impl_->mail.notify_one();
}

Status ThreadedEngineLoop::supports_pins() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->has_prefix_cache) return {};
  return unsupported(
      "pins need the prefix cache; start the server without --no-enable-prefix-caching");
}

Status ThreadedEngineLoop::ask_pins(PinQuestion question) {
  {
    const std::lock_guard lock(impl_->mutex);
    RETURN_IF_ERROR(impl_->check_runs());
    impl_->pin_questions.push_back(std::move(question));
  }
  impl_->mail.notify_one();
  return {};
}

EngineGauges ThreadedEngineLoop::gauges() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->gauges;
}

void ThreadedEngineLoop::take(OutputBatch& batch) {
  batch.clear();
  impl_->await_announced();
  const std::lock_guard lock(impl_->mutex);
  std::swap(batch, impl_->pending);
  batch.gauges = impl_->gauges;
  impl_->woken = false;
}

std::int32_t ThreadedEngineLoop::max_requests() const { return impl_->options.max_requests; }

EngineState ThreadedEngineLoop::state() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state;
}

std::optional<Error> ThreadedEngineLoop::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

std::int32_t ThreadedEngineLoop::unfinished_requests() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<std::int32_t>(impl_->num_unfinished());
}

void ThreadedEngineLoop::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    if (!impl_->thread.joinable() && impl_->state == EngineState::kLoading) {
      impl_->state = EngineState::kStopped;  // was never started
    }
  }
  impl_->mail.notify_one();
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace sluice
