#include "function/process_engine_loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/log.h"
#include "function/append_batch.h"
#include "function/frame_socket.h"
#include "function/grammar_places.h"
#include "function/kv_limit.h"
#include "function/outstanding.h"
#include "function/own_memory.h"
#include "function/process_times.h"
#include "function/run_function.h"
#include "sandbox/spawn.h"

namespace sluice {
namespace {

// How often the own memory of a process is compared with its limit.
constexpr Duration kMemoryLook = std::chrono::milliseconds(200);

}  // namespace

struct ProcessEngineLoop::Impl {
  Impl(Options loop_options, const Backbone& shared, TurnService& turn_service,
       const Clock& loop_clock, std::function<void()> loop_wake)
      : options(std::move(loop_options)),
        backbone(shared),
        turns(turn_service),
        clock(loop_clock),
        mail(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        wake(std::move(loop_wake)),
        outstanding({options.vocab_size, options.hidden_size, options.eos_ids}),
        kv_limit({.block_bytes = options.kv_block_bytes,
                  .first = options.start.kv_least,
                  .beside = options.memory_beside_kv,
                  .patience = options.kv_limit_time}) {
    adapter = std::move(options.adapter);
    if (adapter) options.start.lora_rank = adapter->image.max_rank;
  }

  // The process that runs now. Only the thread uses it.
  struct Running {
    SandboxedProcess process;
    std::unique_ptr<TurnService::Seat> seat;  // ends before the process
    FrameSocket socket;
    ProcessTimes times;
    bool greeted = false;  // its layers are known
    bool ready = false;
    bool has_adapter = false;  // was sent
    TimePoint next_look = {};  // at its memory
  };

  // A frame for a ready process. The thread encodes what large frames are made of.
  struct Outgoing {
    std::vector<std::byte> frame = {};
    TokenGrammarPtr vocabulary_of = nullptr;  // the bytes of its vocabulary go instead of `frame`
    TokenGrammarPtr grammar = nullptr;        // likewise its image, into `place`
    std::int32_t place = 0;
  };

  // Any thread, with `mutex`.
  void post(const ToFunction& message);
  std::int32_t post_grammar(const TokenGrammarPtr& grammar);
  // Any thread.
  void publish();
  void notify();
  void ring() const;

  // The thread.
  void run();
  bool run_process();
  bool run_one();
  Error serve(Running& running);
  Result<Running> start_process();
  Result<std::unique_ptr<TurnService::Seat>> take_seat();
  Status queue_frames(Running& running, std::vector<Outgoing> frames);
  Status exchange(Running& running);
  Status wait(const Running& running) const;
  Status handle_frames(Running& running);
  Status handle_state(StateFrame frame, Running& running);
  Status accept(OutputBatch batch);
  Status check_time(Running& running);
  void report_death(const Error& reason);
  bool pause(Duration length);

  Options options;  // fixed, except for what specialize() changes
  const Backbone& backbone;
  TurnService& turns;
  const Clock& clock;
  const FileDescriptor mail;  // rung for the thread

  mutable std::mutex mutex;
  std::condition_variable stop_wanted;
  // Guarded by `mutex`.
  bool stopping = false;
  std::function<void()> wake;
  bool wake_wanted = false;  // by the thread, although there is nothing new
  std::string tenant;
  SharedContent adapter;              // null: the function computes the base model
  TurnService::Seat* seat = nullptr;  // of the process that runs
  std::vector<Outgoing> outbox;
  GrammarPlaces grammars;  // with what is in the outbox
  bool progress_wanted = false;
  OutstandingRequests outstanding;
  KvLimit kv_limit;
  EngineState state = EngineState::kLoading;
  std::optional<Error> failure;
  std::optional<pid_t> ready_process;
  Duration ended_turns{0};  // of processes that have ended
  OutputBatch pending;
  EngineGauges gauges;
  bool woken = false;

  std::thread thread;  // the owner's
};

// A request was checked before; the other messages are small.
void ProcessEngineLoop::Impl::post(const ToFunction& message) {
  auto frame = encode_frame(message);
  if (frame) outbox.push_back({*std::move(frame)});
  ring();
}

// Returns the place of the grammar, -1 for null.
std::int32_t ProcessEngineLoop::Impl::post_grammar(const TokenGrammarPtr& grammar) {
  if (grammar == nullptr) return -1;
  const GrammarPlaces::Place place = grammars.take(grammar);
  if (place.new_vocabulary) outbox.push_back({.vocabulary_of = grammar});
  if (place.is_new) outbox.push_back({.grammar = grammar, .place = place.index});
  return place.index;
}

void ProcessEngineLoop::Impl::ring() const {
  const std::uint64_t one = 1;
  static_cast<void>(write(mail.get(), &one, sizeof(one)));
}

// Wakes the consumer once for each batch. REQUIRES: without `mutex`.
void ProcessEngineLoop::Impl::publish() {
  {
    const std::lock_guard lock(mutex);
    if (woken) return;
    woken = true;
  }
  notify();
}

// REQUIRES: without `mutex`.
void ProcessEngineLoop::Impl::notify() {
  std::function<void()> tell;
  {
    const std::lock_guard lock(mutex);
    tell = wake;
  }
  tell();
}

void ProcessEngineLoop::Impl::run() {
  if (options.start_after > Duration(0) && !pause(options.start_after)) return;
  Duration length = options.first_pause;
  for (;;) {
    const TimePoint started = clock.now();
    if (!run_process()) return;
    // A process that ran for a while starts a new series of pauses.
    if (clock.now() - started > options.longest_pause) length = options.first_pause;
    if (!pause(length)) return;
    length = std::min(length * 2, options.longest_pause);
  }
}

bool ProcessEngineLoop::Impl::pause(Duration length) {
  std::unique_lock lock(mutex);
  return !stop_wanted.wait_for(lock, length, [&] { return stopping; });
}

// Ends every choice, and forgets what no process has read.
void ProcessEngineLoop::Impl::report_death(const Error& reason) {
  std::size_t lost = 0;
  {
    const std::lock_guard lock(mutex);
    lost = outstanding.size();
    outstanding.fail_all(clock.now(), pending.events);
    outbox.clear();
    grammars.clear();
    ready_process.reset();
    if (std::exchange(progress_wanted, false)) pending.has_progress = true;
    gauges = {};
  }
  log_error(fmt::format("a function process has ended: {}; {} requests end with an error",
                        reason.message, lost));
  publish();
}

// Runs a process until it is gone. False: no other one follows.
bool ProcessEngineLoop::Impl::run_process() {
  const bool again = run_one();
  const std::lock_guard lock(mutex);
  kv_limit.end();
  return again;
}

bool ProcessEngineLoop::Impl::run_one() {
  auto running = start_process();
  Error reason = running ? serve(*running) : running.error();
  if (running) {
    if (auto killed = running->seat->failure()) reason = *std::move(killed);
  }
  {
    const std::lock_guard lock(mutex);
    if (seat != nullptr) ended_turns += seat->turn_time();
    seat = nullptr;
    if (stopping) return false;
    if (state == EngineState::kLoading) {
      state = EngineState::kFailed;
      failure = reason;
    }
  }
  // While the process still exists, which takes time to end: later requests wait for the next one.
  report_death(reason);
  return !failure;
}

// Returns the reason why the process should end or has ended.
Error ProcessEngineLoop::Impl::serve(Running& running) {
  for (;;) {
    bool tell = false;
    std::vector<Outgoing> frames;
    {
      const std::lock_guard lock(mutex);
      if (stopping) return unavailable("the server stops");
      tell = std::exchange(wake_wanted, false);
      if (running.ready) {
        if (adapter && !std::exchange(running.has_adapter, true)) {
          auto frame = encode_frame(ToFunction(AdapterFrame{}));
          if (!frame) return std::move(frame).error();
          running.socket.queue(*std::move(frame), adapter->memory.get());
        }
        if (const auto limit = kv_limit.next(clock.now())) {
          auto frame = encode_frame(ToFunction(KvLimitFrame{*limit}));
          if (!frame) return std::move(frame).error();
          running.socket.queue(*std::move(frame));
        }
        frames.swap(outbox);
      }
    }
    if (tell) notify();
    if (Status status = queue_frames(running, std::move(frames)); !status) {
      return std::move(status).error();
    }
    if (Status status = exchange(running); !status) return std::move(status).error();
  }
}

Status ProcessEngineLoop::Impl::queue_frames(Running& running, std::vector<Outgoing> frames) {
  for (Outgoing& one : frames) {
    if (one.vocabulary_of != nullptr) {
      const ToFunction message(vocabulary_frame(one.vocabulary_of->trie()));
      ASSIGN_OR_RETURN(one.frame, encode_frame(message));
    } else if (one.grammar != nullptr) {
      const ToFunction message(grammar_frame(*one.grammar, one.place));
      ASSIGN_OR_RETURN(one.frame, encode_frame(message));
    }
    running.socket.queue(std::move(one.frame));
  }
  return {};
}

Result<ProcessEngineLoop::Impl::Running> ProcessEngineLoop::Impl::start_process() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return unavailable(fmt::format("cannot create a socket: {}", std::strerror(errno)));
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  const FileDescriptor errors(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!errors.valid()) return unavailable("cannot open /dev/null");
  std::vector<int> descriptors(FunctionDescriptors::kCount);
  descriptors[FunctionDescriptors::kSocket] = theirs.get();
  descriptors[FunctionDescriptors::kBackbone] = backbone.memory.front().get();
  descriptors[FunctionDescriptors::kErrors] = errors.get();
  descriptors[FunctionDescriptors::kManifest] = backbone.manifest.get();
  ASSIGN_OR_RETURN(std::unique_ptr<TurnService::Seat> own, take_seat());
  descriptors[FunctionDescriptors::kTurnGrant] = own->pages().grant_fd();
  descriptors[FunctionDescriptors::kTurnRequest] = own->pages().request_fd();
  descriptors[FunctionDescriptors::kTurnBell] = own->pages().bell_fd();
  descriptors[FunctionDescriptors::kUrgentCount] = turns.urgent_fd();
  auto process = spawn_sandboxed(options.command, descriptors, options.sandbox);
  if (!process) {
    const std::lock_guard lock(mutex);
    seat = nullptr;
    return std::move(process).error();
  }
  own->attach(process->pid());
  {
    const std::lock_guard lock(mutex);
    kv_limit.start();
  }
  return Running{*std::move(process), std::move(own), FrameSocket(std::move(ours)),
                 ProcessTimes(clock.now())};
}

Result<std::unique_ptr<TurnService::Seat>> ProcessEngineLoop::Impl::take_seat() {
  const std::lock_guard lock(mutex);
  ASSIGN_OR_RETURN(std::unique_ptr<TurnService::Seat> taken, turns.add(tenant, options.slow_step));
  seat = taken.get();
  seat->set_due(outstanding.due());
  return taken;
}

Status ProcessEngineLoop::Impl::exchange(Running& running) {
  RETURN_IF_ERROR(running.socket.send());
  RETURN_IF_ERROR(wait(running));
  ASSIGN_OR_RETURN(const bool open, running.socket.receive());
  RETURN_IF_ERROR(handle_frames(running));
  if (!open) return unavailable("it was killed or has failed");
  return check_time(running);
}

Status ProcessEngineLoop::Impl::wait(const Running& running) const {
  const auto check = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::min<Duration>(options.hang_limit, std::chrono::seconds(1)));
  pollfd polled[2] = {{running.socket.fd(), POLLIN, 0}, {mail.get(), POLLIN, 0}};
  if (running.socket.has_queued()) polled[0].events |= POLLOUT;
  if (poll(polled, 2, static_cast<int>(check.count())) < 0 && errno != EINTR) {
    return unavailable(fmt::format("poll: {}", std::strerror(errno)));
  }
  std::uint64_t count = 0;
  static_cast<void>(read(mail.get(), &count, sizeof(count)));
  return {};
}

Status ProcessEngineLoop::Impl::check_time(Running& running) {
  const TimePoint now = clock.now();
  std::size_t requests = 0;
  {
    const std::lock_guard lock(mutex);
    requests = outstanding.size();
  }
  running.times.look(now, requests > 0, running.seat->waited());
  if (!running.ready) {
    if (running.times.since_start() <= options.start_limit) return {};
    return Error{ErrorCode::kDeadlineExceeded, "it did not become ready in time"};
  }
  std::optional<std::int64_t> own_bytes;
  if (options.memory_beside_kv > 0 && now >= running.next_look) {
    own_bytes = own_memory_bytes(running.process.pid());
    running.next_look = now + kMemoryLook;
  }
  const std::lock_guard lock(mutex);
  if (own_bytes) kv_limit.note_own_memory(now, *own_bytes);
  if (auto reason = kv_limit.late(now)) {
    return Error{ErrorCode::kDeadlineExceeded, *std::move(reason)};
  }
  if (running.times.silence() <= options.hang_limit) return {};
  return Error{ErrorCode::kDeadlineExceeded, "it hangs: it has requests and reports nothing"};
}

Status ProcessEngineLoop::Impl::handle_frames(Running& running) {
  for (;;) {
    ASSIGN_OR_RETURN(const auto body, running.socket.next());
    if (!body) return {};
    running.times.heard();
    ASSIGN_OR_RETURN(FromFunction message, decode_from_function(*body));
    if (auto* frame = std::get_if<StateFrame>(&message)) {
      RETURN_IF_ERROR(handle_state(std::move(*frame), running));
    } else {
      RETURN_IF_ERROR(accept(std::get<OutputBatch>(std::move(message))));
    }
  }
}

Status ProcessEngineLoop::Impl::handle_state(StateFrame frame, Running& running) {
  if (frame.state == EngineState::kFailed) return Error{frame.code, std::move(frame.message)};
  if (frame.state == EngineState::kStopped) return unavailable("its engine has stopped");
  if (!running.greeted) {
    running.greeted = true;
    SandboxReport report = running.process.report();
    SandboxReport inside;
    for (LayerState& layer : frame.layers) {
      if (inside.find(layer.layer) != nullptr) return invalid_argument("it names a layer twice");
      inside.add(layer.layer, layer.active, std::move(layer.detail));
    }
    report.merge(inside);
    if (!report.complete()) {
      if (!options.best_effort) {
        return unsupported("the sandbox lacks layers (--sandbox best-effort runs without them): " +
                           report.missing());
      }
      log_warning("a function process runs without: " + report.missing());
    }
    const std::lock_guard lock(mutex);
    ASSIGN_OR_RETURN(auto start, encode_frame(ToFunction(options.start)));
    running.socket.queue(std::move(start));
  }
  if (frame.state != EngineState::kReady) return {};
  running.ready = true;
  running.seat->watch_cpu();
  {
    const std::lock_guard lock(mutex);
    state = EngineState::kReady;
    ready_process = running.process.pid();
  }
  notify();
  return {};
}

Status ProcessEngineLoop::Impl::accept(OutputBatch batch) {
  {
    const std::lock_guard lock(mutex);
    RETURN_IF_ERROR(outstanding.begin(batch, clock.now()));
  }
  RETURN_IF_ERROR(outstanding.check_texts());
  {
    const std::lock_guard lock(mutex);
    RETURN_IF_ERROR(outstanding.finish(batch));
    gauges = batch.gauges;
    kv_limit.shown(gauges.kv_limit_blocks, gauges.kv_blocks_backed);
    if (seat != nullptr) seat->set_due(outstanding.due());
    if (batch.has_progress) progress_wanted = false;
    append_batch(std::move(batch), pending);
  }
  publish();
  return {};
}

ProcessEngineLoop::ProcessEngineLoop(Options options, const Backbone& backbone, TurnService& turns,
                                     const Clock& clock, std::function<void()> wake)
    : impl_(std::make_unique<Impl>(std::move(options), backbone, turns, clock, std::move(wake))) {}

ProcessEngineLoop::~ProcessEngineLoop() { stop(); }

void ProcessEngineLoop::start() {
  impl_->thread = std::thread([this] { impl_->run(); });
}

void ProcessEngineLoop::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->stop_wanted.notify_all();
  impl_->ring();
  if (!impl_->thread.joinable()) return;
  impl_->thread.join();
  {
    const std::lock_guard lock(impl_->mutex);
    std::vector<OutputEvent> ended;
    impl_->outstanding.fail_all(impl_->clock.now(), ended);
    for (OutputEvent& event : ended) {
      event.finish_reason = FinishReason::kCancelled;
      impl_->pending.events.push_back(event);
    }
    impl_->ready_process.reset();
    if (impl_->state != EngineState::kFailed) impl_->state = EngineState::kStopped;
    if (std::exchange(impl_->progress_wanted, false)) impl_->pending.has_progress = true;
  }
  impl_->publish();
}

void ProcessEngineLoop::set_tenant(const std::string& tenant) {
  const std::lock_guard lock(impl_->mutex);
  impl_->tenant = tenant;
  if (impl_->seat != nullptr) impl_->seat->set_tenant(tenant);
}

void ProcessEngineLoop::specialize(SharedContent adapter, std::function<void()> wake) {
  const std::lock_guard lock(impl_->mutex);
  CHECK(impl_->adapter == nullptr && impl_->outstanding.size() == 0);
  CHECK(adapter == nullptr || adapter->image.max_rank <= impl_->options.start.lora_rank);
  impl_->adapter = std::move(adapter);
  impl_->wake = std::move(wake);
  impl_->wake_wanted = true;
  impl_->woken = false;
  // A process after this one is for calls that wait.
  impl_->options.start.touch = false;
  impl_->ring();
}

void ProcessEngineLoop::limit_kv(std::int64_t bytes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->kv_limit.set(bytes);
  impl_->ring();
}

FunctionKv ProcessEngineLoop::kv() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->options.kv_block_bytes <= 0) return {};
  FunctionKv kv;
  kv.limit = impl_->kv_limit.wanted();
  kv.held = impl_->kv_limit.held();
  const EngineGauges& gauges = impl_->gauges;
  kv.used = std::clamp<std::int64_t>(gauges.kv_blocks_used * impl_->options.kv_block_bytes, 0,
                                     std::max(kv.limit, kv.held));
  kv.running = std::max(gauges.running, 0);
  kv.waiting = std::max(gauges.waiting, 0);
  return kv;
}

FunctionUse ProcessEngineLoop::use() const {
  FunctionUse use;
  const std::lock_guard lock(impl_->mutex);
  use.turn_time = impl_->ended_turns;
  if (impl_->seat != nullptr) use.turn_time += impl_->seat->turn_time();
  // A process that is ready was not waited for yet, so the number is still its own.
  if (impl_->ready_process) use.own_bytes = own_memory_bytes(*impl_->ready_process);
  return use;
}

Status ProcessEngineLoop::submit(Request request) {
  const TokenGrammarPtr grammar = request.sampling.grammar;
  const std::lock_guard lock(impl_->mutex);
  CHECK(request.adapter == (impl_->adapter ? impl_->adapter->index : -1));
  if (impl_->state == EngineState::kFailed || impl_->state == EngineState::kStopped) {
    return unavailable("the function has failed or was stopped");
  }
  if (impl_->outstanding.size() >= static_cast<std::size_t>(max_requests())) {
    return resource_exhausted(fmt::format("the queue is full: {} requests run or wait, at most {}",
                                          impl_->outstanding.size(), max_requests()));
  }
  if (grammar != nullptr && !impl_->grammars.contains(grammar)) {
    RETURN_IF_ERROR(check_grammar(*grammar));
  }
  const ToFunction message(RequestFrame{std::move(request), impl_->post_grammar(grammar)});
  ASSIGN_OR_RETURN(std::vector<std::byte> frame, encode_frame(message));
  impl_->outstanding.add(std::get<RequestFrame>(message).request);
  if (impl_->seat != nullptr) impl_->seat->set_due(impl_->outstanding.due());
  impl_->outbox.push_back({std::move(frame)});
  impl_->ring();
  return {};
}

void ProcessEngineLoop::cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->outstanding.contains(id)) impl_->post(CancelFrame{id});
}

void ProcessEngineLoop::end_choice(RequestId id, std::int32_t choice, FinishReason reason) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->outstanding.contains(id)) return;
  impl_->outstanding.end_choice(id, choice);
  impl_->post(EndChoiceFrame{id, choice, reason});
}

void ProcessEngineLoop::ask_progress() {
  const std::lock_guard lock(impl_->mutex);
  impl_->progress_wanted = true;
  impl_->post(AskProgressFrame{});
}

void ProcessEngineLoop::take(OutputBatch& batch) {
  batch.clear();
  const std::lock_guard lock(impl_->mutex);
  std::swap(batch, impl_->pending);
  batch.gauges = impl_->gauges;
  impl_->woken = false;
}

std::int32_t ProcessEngineLoop::max_requests() const { return impl_->options.start.max_requests; }

EngineState ProcessEngineLoop::state() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->state;
}

std::optional<Error> ProcessEngineLoop::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

std::int32_t ProcessEngineLoop::unfinished_requests() const {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<std::int32_t>(impl_->outstanding.size());
}

std::optional<pid_t> ProcessEngineLoop::ready_process() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ready_process;
}

}  // namespace sluice
