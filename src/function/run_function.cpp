#include "function/run_function.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "adapter/adapter_store.h"
#include "adapter/sealed_adapter.h"
#include "backbone/backbone.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/shared_memory.h"
#include "base/urgent_work.h"
#include "engine/backbone_loader.h"
#include "function/frame_socket.h"
#include "function/frames.h"
#include "function/function_grammars.h"
#include "function/turn_gate.h"
#include "function/turn_page.h"
#include "sandbox/enter.h"
#include "server/threaded_engine_loop.h"

namespace sluice {
namespace {

// With weights below this, the process takes no large pages.
constexpr std::size_t kSmallModel = std::size_t{64} << 20;

// Buffers and KV memory begin at a large page each (2 MiB). A small model uses a few hundred KiB of
// them, so large pages would multiply the memory of an idle function. REQUIRES: one thread, which
// the others inherit this from.
void choose_page_size() {
  const auto weights = shared_memory_size(FunctionDescriptors::kBackbone, "backbone");
  if (!weights || *weights >= kSmallModel) return;
  // A kernel that refuses gives large pages as before: more memory, the same tokens.
  static_cast<void>(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
}

class Function {
 public:
  explicit Function(const MakeFunctionDevice& make_device)
      : make_device_(make_device),
        socket_(FileDescriptor(FunctionDescriptors::kSocket), FrameSocket::Descriptors::kTake),
        bell_(FunctionDescriptors::kTurnBell),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    backbone_.memory.emplace_back(FunctionDescriptors::kBackbone);
    backbone_.manifest = FileDescriptor(FunctionDescriptors::kManifest);
  }

  ~Function() {
    if (!loop_) return;
    gate_->stop();
    loop_->stop();
  }

  // Until the server closes the socket.
  Status run(const SandboxReport& report) {
    StateFrame hello;
    hello.layers = report.layers();
    RETURN_IF_ERROR(send(FromFunction(std::move(hello))));
    for (bool open = true; open;) {
      RETURN_IF_ERROR(wait());
      ASSIGN_OR_RETURN(open, socket_.receive());
      RETURN_IF_ERROR(handle_frames());
      RETURN_IF_ERROR(report_outputs());
      RETURN_IF_ERROR(socket_.send());
    }
    return {};
  }

 private:
  Status wait() const {
    pollfd polled[2] = {{socket_.fd(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (socket_.has_queued()) polled[0].events |= POLLOUT;
    if (poll(polled, 2, -1) >= 0 || errno == EINTR) return {};
    return unavailable(fmt::format("poll: {}", std::strerror(errno)));
  }

  Status send(const FromFunction& message) {
    ASSIGN_OR_RETURN(std::vector<std::byte> frame, encode_frame(message));
    socket_.queue(std::move(frame));
    return socket_.send();
  }

  Status handle_frames() {
    for (;;) {
      ASSIGN_OR_RETURN(const auto body, socket_.next());
      if (!body) return {};
      ASSIGN_OR_RETURN(ToFunction message, decode_to_function(*body));
      if (const auto* start_frame = std::get_if<StartFrame>(&message)) {
        if (loop_) return invalid_argument("a function was started twice");
        RETURN_IF_ERROR(start(*start_frame));
      } else if (!loop_) {
        return invalid_argument("a function got a request before its start");
      } else {
        RETURN_IF_ERROR(handle(std::move(message)));
      }
    }
  }

  Status map_turns() {
    const FileDescriptor grant(FunctionDescriptors::kTurnGrant);
    const FileDescriptor request(FunctionDescriptors::kTurnRequest);
    const FileDescriptor urgent(FunctionDescriptors::kUrgentCount);
    ASSIGN_OR_RETURN(gate_, TurnGate::open(grant.get(), request.get(), bell_.get(), clock_));
    ASSIGN_OR_RETURN(server_urgent_, map_urgent_count(urgent.get()));
    urgent_.emplace(nullptr, server_urgent_.get());
    return {};
  }

  Status start(const StartFrame& frame) {
    RETURN_IF_ERROR(map_turns());
    loop_.emplace(
        ThreadedEngineLoop::Options{frame.max_requests}, clock_, [this] { wake(); },
        ThreadedEngineLoop::WhenIdle(), gate_.get());
    loop_->start([this, frame]() -> Result<std::unique_ptr<Engine>> {
      EngineOptions options;
      options.kv_cache_memory = frame.kv_bytes;
      if (frame.kv_least > 0) options.kv_cache_least = frame.kv_least;
      // So that a limit gives memory back. The sandbox hides how much the system has free, so
      // growth never asks for that.
      options.kv_backing = KvBacking::kByNeed;
      options.max_num_seqs = frame.max_num_seqs;
      options.token_budget = frame.token_budget;
      options.budget_mode = frame.follow ? BudgetMode::kFollow : BudgetMode::kTokens;
      options.block_size = frame.block_size;
      options.scheduler = frame.scheduler;
      pool_ = std::make_unique<ThreadPool>(frame.threads, &*urgent_);
      ASSIGN_OR_RETURN(device_, make_device_(*pool_));
      StartupTimeline timeline(clock_);
      ASSIGN_OR_RETURN(LoadedEngine loaded,
                       load_engine_on_backbone(backbone_, options, *device_, *pool_, clock_,
                                               timeline, {frame.lora_rank, frame.touch}));
      if (loaded.least_kv_blocks > 0) loaded.engine->set_kv_limit(loaded.least_kv_blocks);
      adapters_ = loaded.adapters;
      vocab_size_ = loaded.engine->limits().vocab_size;
      return std::move(loaded.engine);
    });
    return {};
  }

  Status handle(ToFunction message) {
    if (auto* request = std::get_if<RequestFrame>(&message)) {
      return submit(std::move(*request));
    } else if (const auto* vocabulary = std::get_if<VocabularyFrame>(&message)) {
      return take_vocabulary(*vocabulary);
    } else if (const auto* grammar = std::get_if<GrammarFrame>(&message)) {
      return grammars_.put(*grammar);
    } else if (const auto* cancel = std::get_if<CancelFrame>(&message)) {
      loop_->cancel(cancel->request);
    } else if (const auto* end = std::get_if<EndChoiceFrame>(&message)) {
      loop_->end_choice(end->request, end->choice, end->reason);
    } else if (std::holds_alternative<AdapterFrame>(message)) {
      return take_adapter();
    } else if (const auto* limit = std::get_if<KvLimitFrame>(&message)) {
      loop_->limit_kv(limit->bytes);
    } else {
      loop_->ask_progress();
    }
    return {};
  }

  Status submit(RequestFrame frame) {
    Request& request = frame.request;
    const RequestId id = request.id;
    if (has_adapter_) request.adapter = 0;  // the only one in the engine's table
    ASSIGN_OR_RETURN(request.sampling.grammar, grammars_.find(frame.grammar));
    auto status = loop_->submit(std::move(request));
    if (status) return {};
    OutputBatch refusal;
    refusal.refused.push_back({id, std::move(status).error()});
    return send(FromFunction(std::move(refusal)));
  }

  Status take_vocabulary(const VocabularyFrame& frame) {
    // The engine's thread sets `vocab_size_` before this state.
    if (loop_->state() == EngineState::kReady) return grammars_.start(frame, vocab_size_);
    return invalid_argument("a function got a vocabulary before it was ready");
  }

  Status take_adapter() {
    const FileDescriptor memory = socket_.take_descriptor();
    // The engine's thread sets `adapters_` before this state.
    if (loop_->state() != EngineState::kReady || adapters_ == nullptr || has_adapter_) {
      return invalid_argument("a function got an adapter that it has no place for");
    }
    const AdapterFormat& format = adapters_->format();
    SealedAdapter adapter;
    ASSIGN_OR_RETURN(adapter.image, open_sealed_adapter(memory, adapters_->config(), format.dtype));
    if (adapter.image.max_rank > format.max_rank) {
      return invalid_argument(fmt::format("a function got an adapter of rank {}, its limit is {}",
                                          adapter.image.max_rank, format.max_rank));
    }
    RETURN_IF_ERROR(
        adapters_->add("adapter", "sealed memory", std::move(adapter)).map([](const auto&) {}));
    has_adapter_ = true;
    return {};
  }

  // Outputs go before a change of state, which may end everything.
  Status report_outputs() {
    std::uint64_t count = 0;
    if (!loop_ || read(wake_.get(), &count, sizeof(count)) < 0) return {};
    const EngineState state = loop_->state();
    OutputBatch batch;
    loop_->take(batch);
    RETURN_IF_ERROR(send(FromFunction(std::move(batch))));
    mark_outputs({});
    if (state == state_) return {};
    state_ = state;
    StateFrame frame;
    frame.state = state;
    if (const auto failure = loop_->failure()) {
      frame.code = failure->code;
      frame.message = failure->message.substr(0, kMaxStateText);
    }
    return send(FromFunction(std::move(frame)));
  }

  // The threads that compute leave a core to the one that sends. Otherwise a short step's tokens
  // wait for the end of a time slice, and those of many steps go out together.
  void mark_outputs(UrgentWork::Mark mark) {
    const std::lock_guard lock(mark_mutex_);
    mark_ = std::move(mark);
  }

  // On the engine's thread.
  void wake() {
    mark_outputs(UrgentWork::Mark(&*urgent_));
    const std::uint64_t one = 1;
    static_cast<void>(write(wake_.get(), &one, sizeof(one)));
  }

  const MakeFunctionDevice& make_device_;
  const SystemClock clock_;
  FrameSocket socket_;
  Backbone backbone_;
  FileDescriptor bell_;
  FileDescriptor wake_;
  // From the start on.
  std::unique_ptr<TurnGate> gate_;
  MappedPage<const UrgentWork::Count> server_urgent_;
  std::optional<UrgentWork> urgent_;  // the server's, and outputs that wait to be sent
  std::mutex mark_mutex_;
  UrgentWork::Mark mark_;  // guarded by `mark_mutex_`
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Device> device_;
  std::optional<ThreadedEngineLoop> loop_;
  EngineState state_ = EngineState::kLoading;
  SharedAdapters adapters_;   // the engine's; null: it computes the base model alone
  bool has_adapter_ = false;  // all later requests are for the adapter
  std::int32_t vocab_size_ = 0;
  FunctionGrammars grammars_;
};

}  // namespace

int run_function(const MakeFunctionDevice& make_device) {
  choose_page_size();
  Function function(make_device);
  SandboxReport report;
  Status status = enter_sandbox({}, report);
  if (status) status = function.run(report);
  if (status) return 0;
  log_error("function: " + status.error().message);
  return 1;
}

}  // namespace sluice
