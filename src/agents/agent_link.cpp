#include "agents/agent_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace sluice {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(200);
constexpr Duration kTick = std::chrono::milliseconds(20);
// Bytes of outputs in one message, if there are several.
constexpr std::size_t kMaxOutputs = std::size_t{1} << 20;
constexpr std::size_t kMaxAnswer = std::size_t{1} << 30;
// Reports in one expiry.
constexpr int kReports = 6;

}  // namespace

// One request at a time and its answer.
class AgentLink::Sink final : public http::ResponseSink {
 public:
  using End = std::function<void(const Status& status, int code, std::string body)>;

  explicit Sink(http::HttpClient& client) : client_(client) {}
  ~Sink() override { cancel(); }

  bool busy() const { return busy_; }
  // `piece`: gets the parts of a body with the status 200, which are then not kept; may be empty.
  void start(const http::ClientRequest& request, End end, std::function<void()> head = {},
             std::function<void(std::string_view)> piece = {}) {
    end_ = std::move(end);
    head_ = std::move(head);
    piece_ = std::move(piece);
    body_.clear();
    busy_ = true;
    client_.start(request, *this);
  }
  void cancel() {
    if (std::exchange(busy_, false)) client_.cancel(*this);
  }

  void on_head(const http::ResponseHead& head) override {
    code_ = head.status;
    if (code_ == 200 && head_) head_();
  }
  void on_body(std::string_view piece) override {
    if (code_ == 200 && piece_) return piece_(piece);
    if (body_.size() + piece.size() <= kMaxAnswer) body_ += piece;
  }
  void on_end(Status status) override {
    busy_ = false;
    const End end = std::move(end_);
    end(status, code_, std::move(body_));
  }

 private:
  http::HttpClient& client_;
  End end_;
  std::function<void()> head_;
  std::function<void(std::string_view)> piece_;
  std::string body_;
  int code_ = 0;
  bool busy_ = false;
};

Result<std::unique_ptr<AgentLink>> AgentLink::open(Options options, http::EventLoop& loop,
                                                   const Clock& clock, AgentHost& host,
                                                   AgentFunctions& functions, Calls calls) {
  ASSIGN_OR_RETURN(auto client, http::HttpClient::open(loop, options.client));
  auto link = std::unique_ptr<AgentLink>(
      new AgentLink(std::move(options), loop, clock, host, functions, std::move(calls)));
  link->client_ = std::move(client);
  link->control_ = std::make_unique<Sink>(*link->client_);
  link->stream_ = std::make_unique<Sink>(*link->client_);
  return link;
}

AgentLink::AgentLink(Options options, http::EventLoop& loop, const Clock& clock, AgentHost& host,
                     AgentFunctions& functions, Calls calls)
    : options_(std::move(options)),
      loop_(loop),
      clock_(clock),
      host_(host),
      functions_(functions),
      calls_(std::move(calls)) {}

AgentLink::~AgentLink() = default;

void AgentLink::start() {
  functions_.set_calls(
      {.output =
           [this](const AgentOutput& output) {
             const auto bytes = encode_output(output);
             if (broken_) return;
             if (!bytes) return break_session("an output cannot be sent: " + bytes.error().message);
             outputs_.emplace_back(reinterpret_cast<const char*>(bytes->data()), bytes->size());
             send_next();
           },
       .fetch_adapter = [this](const std::string& digest) { fetch_adapter(digest); },
       .wake = [this] { loop_.post([this] { functions_.collect(); }); },
       .broken = [this](const Error& error) { break_session(error.message); }});
  join();
  tick();
}

void AgentLink::tick() {
  if (phase_ == Phase::kLeft) return;
  loop_.after(kTick, [this] { tick(); });
  const TimePoint now = clock_.now();
  if (leave_by_ && (now >= *leave_by_ || (phase_ == Phase::kJoined && functions_.empty()))) {
    return leave();
  }
  if (phase_ != Phase::kJoined && phase_ != Phase::kOpening) return;
  if (now - answered_ >= expiry_ * 2 / 3) {
    return lose(fmt::format("it has answered nothing for {:g} s", to_seconds(now - answered_)));
  }
  if (phase_ == Phase::kJoined && now - stream_heard_ >= expiry_) {
    return lose("its stream of commands is silent");
  }
  send_next();
}

// ---------------------------------------------------------------- joining

void AgentLink::join() {
  if (phase_ == Phase::kLeft || failed_ || control_->busy()) return;
  phase_ = Phase::kJoining;
  if (key_.empty()) key_ = fmt::format("{}-{}", options_.key_prefix, ++joins_);
  AgentJoin join = options_.join;
  join.key = key_;
  join.earlier_joins = earlier_joins_.earlier();
  control_->start({.method = "POST", .path = "/v1/agents/join", .body = agent_json(join)},
                  [this, sent = clock_.now()](const Status& status, int, const std::string& body) {
                    join_answered(sent, status, body);
                  });
}

void AgentLink::join_answered(TimePoint sent, const Status& status, const std::string& body) {
  const auto again = [this, session = session_](const std::string& cause) {
    if (std::exchange(cause_, cause) != cause) log_warning("cannot join yet: " + cause);
    loop_.after(kPause, [this, session] {
      if (session == session_) join();
    });
  };
  if (!status) return again(status.error().message);
  const auto answer = parse_agent_answer(body);
  if (!answer) return fail(answer.error());
  switch (answer->fault) {
    case AgentFault::kNone: break;
    case AgentFault::kNotReady:
    case AgentFault::kTooManyAgents: return again(answer->message);
    default: return fail(invalid_argument("the gateway refuses this agent: " + answer->message));
  }
  earlier_joins_.add(std::exchange(key_, {}));
  cause_.clear();
  epoch_ = answer->epoch;
  expiry_ = answer->expiry;
  answered_ = sent;
  sequence_ = 0;
  under_way_ = {};
  outputs_.clear();
  reader_ = std::make_unique<AgentCommandReader>();
  open_stream();
}

void AgentLink::open_stream() {
  phase_ = Phase::kOpening;
  stream_->start(
      {.method = "POST",
       .path = "/v1/agents/listen",
       .body = agent_json(AgentCall{options_.join.agent, epoch_})},
      [this](const Status& status, int code, const std::string& body) {
        if (!status) return lose(status.error().message);
        const auto answer =
            code == 200 ? Result<AgentAnswer>(AgentAnswer{}) : parse_agent_answer(body);
        lose(answer && !answer->message.empty() ? answer->message
                                                : "it has closed the stream of commands");
      },
      [this] { stream_opened(); }, [this](std::string_view piece) { take_command(piece); });
}

void AgentLink::stream_opened() {
  phase_ = Phase::kJoined;
  stream_heard_ = clock_.now();
  report_now_ = true;
  calls_.joined();
  send_next();
}

void AgentLink::take_command(std::string_view bytes) {
  if (phase_ != Phase::kJoined) return;
  stream_heard_ = clock_.now();
  const Status status = reader_->put(bytes, [this](AgentCommand command) -> Status {
    if (command.kind == AgentCommandKind::kPlan && command.epoch != epoch_) {
      return invalid_argument(
          fmt::format("a plan is for epoch {}, not for {}", command.epoch, epoch_));
    }
    return functions_.handle(std::move(command));
  });
  if (!status) lose(status.error().message);
}

// ---------------------------------------------------------------- messages

void AgentLink::send_next() {
  if (phase_ != Phase::kJoined || control_->busy() || broken_) return;
  if (under_way_.path.empty()) {
    // The gateway makes room for a call by what it knows of loads.
    const bool report = report_now_ || reported_loads_ != functions_.load_changes() ||
                        clock_.now() - reported_ >= expiry_ / kReports;
    if (!report && outputs_.empty()) return;
    under_way_ = {.method = "POST", .path = {}, .body = {}};
    ++sequence_;
    if (report) {
      report_now_ = false;
      reported_ = clock_.now();
      reported_loads_ = functions_.load_changes();
      under_way_.path = "/v1/agents/report";
      under_way_.body = agent_json(AgentReport{
          options_.join.agent, epoch_, sequence_, std::max<std::int64_t>(0, host_.free_bytes()),
          leave_by_.has_value(), functions_.holdings(), functions_.adapters(), functions_.uses()});
    } else {
      under_way_.path = fmt::format("/v1/agents/outputs?agent={}&epoch={}&sequence={}",
                                    options_.join.agent, epoch_, sequence_);
      do {
        under_way_.body += outputs_.front();
        outputs_.pop_front();
      } while (!outputs_.empty() &&
               under_way_.body.size() + outputs_.front().size() <= kMaxOutputs);
    }
  }
  control_->start(under_way_,
                  [this, sent = clock_.now()](const Status& status, int, const std::string& body) {
                    message_answered(sent, status, body);
                  });
}

void AgentLink::message_answered(TimePoint sent, const Status& status, const std::string& body) {
  if (phase_ != Phase::kJoined) return;
  // It is sent again at the next tick, with its number.
  if (!status) return;
  const auto answer = parse_agent_answer(body);
  if (!answer) return lose(answer.error().message);
  // A message that was sent twice has arrived with its first copy.
  if (answer->fault != AgentFault::kNone && answer->fault != AgentFault::kRepeated) {
    return lose(answer->message);
  }
  answered_ = sent;
  under_way_ = {};
  send_next();
}

void AgentLink::fetch_adapter(const std::string& digest) {
  std::unique_ptr<Sink>& sink = fetches_[digest];
  if (sink && sink->busy()) return;
  sink = std::make_unique<Sink>(*client_);
  sink->start(
      {.method = "GET", .path = "/v1/agents/adapters/" + digest, .body = {}},
      [this, digest](const Status& status, int code, std::string body) {
        Result<std::string> bytes = std::move(body);
        if (!status) {
          bytes = tl::unexpected(status.error());
        } else if (code != 200) {
          bytes = tl::unexpected(unavailable("the gateway does not give the adapter: " + *bytes));
        }
        functions_.adapter_came(digest, bytes);
      });
}

// ---------------------------------------------------------------- ends

void AgentLink::lose(const std::string& cause) {
  if (phase_ == Phase::kEnding || phase_ == Phase::kLeft) return;
  phase_ = Phase::kEnding;
  ++session_;
  broken_ = false;
  log_warning(
      fmt::format("the gateway is lost: {}; all functions end, and the agent joins again", cause));
  control_->cancel();
  stream_->cancel();
  fetches_.clear();
  outputs_.clear();
  functions_.end_all([this, session = session_] {
    loop_.after(kPause, [this, session] {
      if (session == session_) join();
    });
  });
}

// Nothing may follow what was left out. The session ends later, because the functions are in the
// middle of something.
void AgentLink::break_session(const std::string& reason) {
  broken_ = true;
  loop_.post([this, session = session_, reason] {
    if (session == session_) lose(reason);
  });
}

void AgentLink::fail(Error error) {
  failed_ = true;
  calls_.failed(std::move(error));
}

void AgentLink::drain(Duration patience) {
  if (leave_by_) return;
  leave_by_ = clock_.now() + patience;
  report_now_ = true;
  send_next();
}

void AgentLink::leave() {
  const bool joined = phase_ == Phase::kJoined;
  phase_ = Phase::kLeft;
  ++session_;
  control_->cancel();
  fetches_.clear();
  functions_.end_all([this, joined] {
    if (!joined) return calls_.left();
    control_->start({.method = "POST",
                     .path = "/v1/agents/leave",
                     .body = agent_json(AgentCall{options_.join.agent, epoch_})},
                    [this](const Status&, int, const std::string&) { calls_.left(); });
  });
}

}  // namespace sluice
