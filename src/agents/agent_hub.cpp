#include "agents/agent_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/shared_memory.h"

namespace sluice {
namespace {

constexpr std::string_view kBase = "/v1/agents/";
constexpr std::string_view kAdapters = "/v1/agents/adapters/";
// Pings in one expiry, so that an agent knows that its stream lives.
constexpr int kPings = 4;

http::Response response_of(const AgentAnswer& answer) {
  http::Response response;
  response.status = agent_fault_status(answer.fault);
  response.body = agent_answer_json(answer);
  if (answer.fault == AgentFault::kWrongToken) {
    response.headers.push_back({"WWW-Authenticate", "Bearer"});
  }
  return response;
}

http::Response refuse(AgentFault kind, std::string message) {
  return response_of(agent_fault(kind, std::move(message)));
}

bool is_post(std::string_view path) {
  constexpr std::array<std::string_view, 5> kPosts = {"join", "report", "outputs", "listen",
                                                      "leave"};
  return path.starts_with(kBase) &&
         std::ranges::find(kPosts, path.substr(kBase.size())) != kPosts.end();
}

bool is_get(std::string_view path) {
  return path == "/v1/agents/backbones" || path.starts_with(kAdapters);
}

// "agent=NAME&epoch=N&sequence=N", as agents write it.
struct OutputsQuery {
  std::string agent;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
};

bool read_number(std::string_view text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<OutputsQuery> parse_outputs_query(std::string_view query) {
  OutputsQuery out;
  int found = 0;
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = part.substr(0, equals);
    const std::string_view value = part.substr(equals + 1);
    if (name == "agent") {
      out.agent = value;
    } else if (name == "epoch") {
      if (!read_number(value, out.epoch)) return std::nullopt;
    } else if (name == "sequence") {
      if (!read_number(value, out.sequence)) return std::nullopt;
    } else {
      return std::nullopt;
    }
    ++found;
  }
  return found == 3 ? std::optional(out) : std::nullopt;
}

// The bytes of an adapter, which may be many megabytes. Any thread.
http::Response adapter_response(const AdapterContent& content) {
  constexpr const char* kWhat = "adapter for an agent";
  const int memory = content.memory.get();
  const auto size = shared_memory_size(memory, kWhat);
  if (!size || *size == 0) return refuse(AgentFault::kUnknownName, "the adapter has no memory");
  const auto mapped = map_shared_memory(memory, *size, kWhat);
  if (!mapped) return refuse(AgentFault::kNotReady, mapped.error().message);
  http::Response response;
  response.content_type = "application/octet-stream";
  response.body.assign(reinterpret_cast<const char*>(mapped->get()), *size);
  return response;
}

}  // namespace

std::string_view agent_phase_name(AgentPhase phase) {
  switch (phase) {
    case AgentPhase::kGone: return "gone";
    case AgentPhase::kLost: return "lost";
    case AgentPhase::kDraining: return "draining";
    case AgentPhase::kOpen: return "open";
  }
  return "gone";
}

AgentHub::AgentHub(const Options& options, BearerToken token, const Clock& clock,
                   std::function<void()> changed, Aside aside)
    : options_(options),
      token_(std::move(token)),
      clock_(clock),
      changed_(std::move(changed)),
      aside_(std::move(aside)),
      book_(options.expiry, options.first_epoch) {}

AgentHub::~AgentHub() = default;

void AgentHub::set_backbones(std::vector<HubBackbone> backbones) {
  std::vector<GatewayBackbone> offered;
  for (const HubBackbone& one : backbones) offered.push_back(one.backbone);
  book_.set_backbones(std::move(offered));
  backbones_ = std::move(backbones);
}

void AgentHub::stop() {
  for (std::int32_t number = 1; number <= std::ssize(agents_); ++number) {
    if (at(number).stream) lose(number, "the gateway stops");
  }
  for (const auto& [call, exchange] : std::exchange(adapter_calls_, {})) {
    exchange->respond(refuse(AgentFault::kNotReady, "the gateway stops"));
  }
}

void AgentHub::tick() {
  const TimePoint now = clock_.now();
  for (const std::string& name : book_.advance(now)) {
    const std::int32_t number = number_of(name);
    lose(number, "it was silent for too long");
    fence(number);
  }
  for (std::int32_t number = 1; number <= std::ssize(agents_); ++number) {
    Agent& agent = at(number);
    if (!agent.stream || now - agent.pinged < options_.expiry / kPings) continue;
    agent.pinged = now;
    send({.kind = AgentCommandKind::kPing, .time = now}, number);
  }
}

// ---------------------------------------------------------------- agents

AgentHub::Agent* AgentHub::find(const std::string& name) {
  const auto found = std::ranges::find(views_, name, &AgentView::name);
  return found == views_.end() ? nullptr : &at(found->number);
}

// Numbers of agents that are gone stay theirs, but not beyond those that may be there at once.
std::int32_t AgentHub::number_of(const std::string& name) {
  const auto found = std::ranges::find(views_, name, &AgentView::name);
  if (found != views_.end()) return found->number;
  for (AgentView& old : views_) {
    const Agent& agent = at(old.number);
    if (views_.size() < AgentBook::kMaxAgents || agent.stream || !agent.fenced ||
        !agent.loops.empty()) {
      continue;
    }
    old.name = name;
    return old.number;
  }
  agents_.emplace_back();
  AgentView& seen = views_.emplace_back();
  seen.name = name;
  seen.number = static_cast<std::int32_t>(views_.size());
  return seen.number;
}

void AgentHub::update(std::int32_t number) {
  const Agent& agent = at(number);
  AgentView& seen = view(number);
  seen.phase = agent.stream   ? agent.draining ? AgentPhase::kDraining : AgentPhase::kOpen
               : agent.fenced ? AgentPhase::kGone
                              : AgentPhase::kLost;
  seen.open = seen.phase == AgentPhase::kOpen;
  changed_();
}

void AgentHub::lose(std::int32_t number, const std::string& cause) {
  Agent& agent = at(number);
  if (auto stream = std::exchange(agent.stream, nullptr)) {
    log_warning(fmt::format("agent '{}' is gone: {}", view(number).name, cause));
    if (!stream->closed()) stream->abort();
  }
  for (const auto& [instance, loop] : agent.loops) loop->lost();
  AgentView& seen = view(number);
  seen.cores = seen.memory_bytes = seen.free_bytes = 0;
  seen.backbones.assign(backbones_.size(), false);
  seen.holds.assign(backbones_.size(), {});
  seen.adapters.assign(backbones_.size(), {});
  agent.planned_adapters.clear();
  drop_unused_adapters();
  update(number);
}

Duration AgentHub::lease_left(std::int32_t number) const {
  const AgentView& seen = views_[static_cast<std::size_t>(number - 1)];
  if (seen.phase == AgentPhase::kGone) return Duration(0);
  return std::max(Duration(0), options_.expiry - (clock_.now() - seen.heard));
}

void AgentHub::plan(std::int32_t number, const std::map<std::int32_t, HubPlan>& plan_of) {
  if (!view(number).open) return;
  std::vector<PlannedBackbone> plan;
  std::vector<SharedContent> contents;
  for (const auto& [backbone, wanted] : plan_of) {
    CHECK(view(number).backbones[static_cast<std::size_t>(backbone)]);
    PlannedBackbone& one = plan.emplace_back();
    one.name = backbones_[static_cast<std::size_t>(backbone)].backbone.name;
    one.workers = static_cast<std::uint32_t>(wanted.workers);
    for (const SharedContent& content : wanted.adapters) {
      if (contents.size() == kMaxAgentAdapters) break;
      one.adapters.push_back(content->image.digest);
      contents.push_back(content);
    }
  }
  Agent& agent = at(number);
  const TimePoint now = clock_.now();
  if (agent.planned == plan && now - agent.planned_at < kPlanAgain) return;
  AgentCommand command{.kind = AgentCommandKind::kPlan, .time = now, .epoch = agent.epoch};
  command.plan = plan;
  for (const SharedContent& content : contents) adapters_[content->image.digest] = content;
  agent.planned_adapters = std::move(contents);
  drop_unused_adapters();
  if (!send(command, number)) return log_error("a plan is too large for an agent");
  agent.planned = std::move(plan);
  agent.planned_at = now;
}

void AgentHub::drop_unused_adapters() {
  std::erase_if(adapters_, [](const auto& one) { return one.second.use_count() == 1; });
}

// REQUIRES: the agent is lost.
void AgentHub::fence(std::int32_t number) {
  Agent& agent = at(number);
  agent.fenced = true;
  for (const auto& [instance, loop] : agent.loops) loop->fenced();
  update(number);
}

bool AgentHub::send(const AgentCommand& command, std::int32_t number) {
  const auto bytes = encode_command(command);
  if (!bytes) return false;
  if (const auto stream = at(number).stream) {
    stream->write({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  }
  return true;
}

void AgentHub::forget(const RemoteLoop& loop) {
  Agent& agent = at(loop.agent());
  if (!loop.is_lost()) {
    send({.kind = AgentCommandKind::kEnd, .instance = loop.instance(), .time = clock_.now()},
         loop.agent());
  }
  agent.loops.erase(loop.instance());
  drop_unused_adapters();
}

std::unique_ptr<TenantLoop> AgentHub::start(std::int32_t number, std::int32_t backbone,
                                            SharedContent adapter, const std::string& tenant,
                                            std::function<void()> wake) {
  CHECK(view(number).open);
  const HubBackbone& model = backbones_[static_cast<std::size_t>(backbone)];
  RemoteLoop::Options options{.instance = next_instance_++,
                              .agent = number,
                              .agent_name = view(number).name,
                              .backbone = model.backbone.name,
                              .adapter_digest = adapter ? adapter->image.digest : std::string(),
                              .adapter = adapter ? adapter->index : -1,
                              .model = model.model,
                              .turn_cores = at(number).turn_cores,
                              .gateway_turn_cores = options_.turn_cores,
                              .max_requests = options_.max_requests};
  if (adapter) adapters_[adapter->image.digest] = std::move(adapter);
  auto loop = std::make_unique<RemoteLoop>(std::move(options), static_cast<AgentChannel&>(*this),
                                           clock_, std::move(wake));
  at(number).loops[loop->instance()] = loop.get();
  loop->set_tenant(tenant);
  return loop;
}

// ---------------------------------------------------------------- REST

std::optional<http::Response> AgentHub::admit(const http::Request& head) {
  if (!is_post(head.path) && !is_get(head.path)) {
    return refuse(AgentFault::kUnknownPath, fmt::format("there is no path {}", head.path));
  }
  const std::string_view method = is_post(head.path) ? "POST" : "GET";
  if (head.method != method) {
    http::Response response =
        refuse(AgentFault::kUnknownPath, fmt::format("{} needs the method {}", head.path, method));
    response.status = 405;
    return response;
  }
  if (token_.admits(head.header("authorization"))) return std::nullopt;
  return refuse(AgentFault::kWrongToken,
                "the header Authorization must be 'Bearer TOKEN', with the token of "
                "--agents-token-file");
}

http::Response AgentHub::refusal(const http::Request&, int status, std::string message) {
  http::Response response = refuse(AgentFault::kBadRequest, std::move(message));
  response.status = status;
  return response;
}

// `exchange` is shared as every exchange is.
void AgentHub::handle(std::shared_ptr<http::Exchange> exchange) {
  const http::Request& request = exchange->request();
  const std::string_view path = request.path;
  if (path.starts_with(kAdapters)) return send_adapter(exchange, path.substr(kAdapters.size()));
  if (path == "/v1/agents/listen") return listen(exchange);
  if (path == "/v1/agents/backbones") {
    if (backbones_.empty()) {
      return exchange->respond(refuse(AgentFault::kNotReady, "the gateway loads its backbones"));
    }
    http::Response response;
    response.body = gateway_backbones_json(book_.backbones());
    return exchange->respond(std::move(response));
  }
  const AgentAnswer answer = path == "/v1/agents/join"      ? join(request)
                             : path == "/v1/agents/report"  ? report(request)
                             : path == "/v1/agents/outputs" ? outputs(request)
                                                            : leave(request);
  exchange->respond(response_of(answer));
}

AgentAnswer AgentHub::join(const http::Request& request) {
  const auto join = parse_agent_join(request.body);
  if (!join) return agent_fault(AgentFault::kBadRequest, join.error().message);
  const AgentBook::Joined joined = book_.join(clock_.now(), *join);
  if (!joined.is_new) return joined.answer;
  const std::int32_t number = number_of(join->agent);
  lose(number, "another process has joined by its name");
  fence(number);  // a process that joins runs nothing, and fences those before it
  at(number).epoch = joined.answer.epoch;
  at(number).turn_cores = static_cast<std::int32_t>(join->turn_cores);
  at(number).draining = false;
  at(number).planned.reset();
  AgentView& seen = view(number);
  seen.places = static_cast<std::int32_t>(join->max_functions);
  seen.cores = join->cores;
  seen.memory_bytes = join->memory_bytes;
  seen.free_bytes = join->memory_bytes;
  seen.heard = clock_.now();
  seen.backbones.assign(backbones_.size(), false);
  for (std::size_t i = 0; i < backbones_.size(); ++i) {
    seen.backbones[i] = std::ranges::find(join->backbones, backbones_[i].backbone.name,
                                          &AgentBackbone::name) != join->backbones.end();
  }
  log_info(fmt::format("agent '{}' has joined, with {} cores and up to {} functions", join->agent,
                       join->cores, join->max_functions));
  return joined.answer;
}

// Without its stream an agent is lost, and must not renew its lease.
AgentAnswer AgentHub::check_stream(const std::string& name) {
  const Agent* agent = find(name);
  if (agent != nullptr && agent->stream) return {};
  return agent_fault(
      AgentFault::kUnknownAgent,
      fmt::format("agent '{}' has no stream of commands; end its functions and join", name));
}

// An instance may have ended since the agent wrote; one that never was is an error. REQUIRES: the
// agent is known.
AgentAnswer AgentHub::check_report(const AgentReport& report) const {
  for (const AgentInstance& one : report.instances) {
    if (one.id < next_instance_) continue;
    return agent_fault(AgentFault::kUnknownName,
                       fmt::format("instances: there is no id {}", one.id));
  }
  const auto seen = std::ranges::find(views_, report.agent, &AgentView::name);
  const auto check = [&](const char* field, const std::string& name) -> AgentAnswer {
    const auto number = number_of_backbone(name);
    if (number && seen->backbones[*number]) return {};
    return agent_fault(AgentFault::kUnknownName,
                       fmt::format("{}: the agent has not joined with '{}'", field, name));
  };
  AgentAnswer answer;
  for (const AgentHolding& one : report.backbones) {
    if (answer.fault == AgentFault::kNone) answer = check("backbones", one.name);
  }
  for (const AgentAdapter& one : report.adapters) {
    if (answer.fault == AgentFault::kNone) answer = check("adapters", one.backbone);
  }
  return answer;
}

std::optional<std::size_t> AgentHub::number_of_backbone(const std::string& name) const {
  const auto known = std::ranges::find(
      backbones_, name, [](const HubBackbone& backbone) { return backbone.backbone.name; });
  if (known == backbones_.end()) return std::nullopt;
  return static_cast<std::size_t>(known - backbones_.begin());
}

AgentAnswer AgentHub::report(const http::Request& request) {
  const auto report = parse_agent_report(request.body);
  if (!report) return agent_fault(AgentFault::kBadRequest, report.error().message);
  AgentAnswer answer = book_.check_next(report->agent, report->epoch, report->sequence);
  if (answer.fault == AgentFault::kNone) answer = check_stream(report->agent);
  if (answer.fault == AgentFault::kNone) answer = check_report(*report);
  if (answer.fault != AgentFault::kNone) return answer;
  book_.accept(clock_.now(), report->agent, report->sequence);
  const std::int32_t number = number_of(report->agent);
  Agent& agent = at(number);
  for (const AgentInstance& one : report->instances) {
    const auto loop = agent.loops.find(one.id);
    if (loop != agent.loops.end() && !loop->second->is_lost()) {
      loop->second->set_own_bytes(one.own_bytes);
    }
  }
  AgentView& seen = view(number);
  seen.free_bytes = report->free_bytes;
  seen.heard = clock_.now();
  std::vector<AgentHolding> holds(backbones_.size());
  for (std::size_t i = 0; i < backbones_.size(); ++i) {
    const auto held =
        std::ranges::find(report->backbones, backbones_[i].backbone.name, &AgentHolding::name);
    if (held != report->backbones.end()) holds[i] = *held;
  }
  seen.adapters.assign(backbones_.size(), {});
  for (const AgentAdapter& one : report->adapters) {
    seen.adapters[*number_of_backbone(one.backbone)][one.digest] = one.took;
  }
  const bool is_news = agent.draining != report->draining || seen.holds != holds;
  agent.draining = report->draining;
  seen.holds = std::move(holds);
  if (is_news) update(number);
  answer.epoch = agent.epoch;
  answer.expiry = options_.expiry;
  return answer;
}

AgentAnswer AgentHub::outputs(const http::Request& request) {
  const auto query = parse_outputs_query(request.query);
  if (!query) {
    return agent_fault(AgentFault::kBadRequest,
                       "the query must be agent=NAME&epoch=NUMBER&sequence=NUMBER");
  }
  AgentAnswer answer = book_.check_next(query->agent, query->epoch, query->sequence);
  if (answer.fault == AgentFault::kNone) answer = check_stream(query->agent);
  if (answer.fault != AgentFault::kNone) return answer;
  auto outputs = decode_outputs(request.body);
  if (!outputs) return agent_fault(AgentFault::kBadRequest, outputs.error().message);
  for (const AgentOutput& output : *outputs) {
    if (output.instance > 0 && output.instance < next_instance_) continue;
    return agent_fault(AgentFault::kUnknownName,
                       fmt::format("there is no instance {}", output.instance));
  }
  book_.accept(clock_.now(), query->agent, query->sequence);
  const std::int32_t number = number_of(query->agent);
  Agent& agent = at(number);
  view(number).heard = clock_.now();
  for (AgentOutput& output : *outputs) {
    const auto loop = agent.loops.find(output.instance);
    if (loop == agent.loops.end()) continue;  // it has ended
    const Status status = loop->second->handle(std::move(output));
    if (status) continue;
    lose(number, "it has said something that cannot be: " + status.error().message);
    return agent_fault(AgentFault::kBadRequest, status.error().message);
  }
  answer.epoch = agent.epoch;
  answer.expiry = options_.expiry;
  return answer;
}

AgentAnswer AgentHub::leave(const http::Request& request) {
  const auto call = parse_agent_call(request.body);
  if (!call) return agent_fault(AgentFault::kBadRequest, call.error().message);
  AgentAnswer answer = book_.check(clock_.now(), call->agent, call->epoch);
  if (answer.fault != AgentFault::kNone) return answer;
  book_.remove(call->agent);
  const std::int32_t number = number_of(call->agent);
  lose(number, "it has left");
  fence(number);
  answer.epoch = call->epoch;
  answer.expiry = options_.expiry;
  return answer;
}

// `exchange` is shared as every exchange is.
void AgentHub::listen(const std::shared_ptr<http::Exchange>& exchange) {
  const auto call = parse_agent_call(exchange->request().body);
  if (!call) {
    return exchange->respond(refuse(AgentFault::kBadRequest, call.error().message));
  }
  Agent* const known = find(call->agent);
  if (known != nullptr && known->epoch == call->epoch && (known->stream || !known->fenced)) {
    return exchange->respond(
        refuse(AgentFault::kRepeated, "this epoch has had its stream; end the functions and join"));
  }
  const AgentAnswer answer = book_.check(clock_.now(), call->agent, call->epoch);
  if (answer.fault != AgentFault::kNone) return exchange->respond(response_of(answer));
  const std::int32_t number = number_of(call->agent);
  Agent& agent = at(number);
  agent.stream = exchange;
  agent.fenced = false;
  http::Response head;
  head.content_type = "application/octet-stream";
  exchange->begin_stream(std::move(head));
  exchange->on_close([this, number, epoch = call->epoch](http::CloseReason reason) {
    if (at(number).epoch != epoch || !at(number).stream) return;
    lose(number, fmt::format("its connection has ended ({})", http::close_reason_name(reason)));
  });
  agent.pinged = clock_.now();
  send({.kind = AgentCommandKind::kPing, .time = clock_.now()}, number);
  update(number);
}

// `exchange` is shared as every exchange is.
void AgentHub::send_adapter(std::shared_ptr<http::Exchange> exchange, std::string_view digest) {
  const auto found = adapters_.find(digest);
  if (found == adapters_.end()) {
    return exchange->respond(
        refuse(AgentFault::kUnknownName, "no function on an agent has this adapter, and no plan"));
  }
  const std::uint64_t call = next_adapter_call_++;
  adapter_calls_[call] = std::move(exchange);
  const auto response = std::make_shared<http::Response>();  // shared: written and read in turn
  aside_([content = found->second, response] { *response = adapter_response(*content); },
         [this, call, response] {
           const auto waiting = adapter_calls_.extract(call);
           if (!waiting.empty()) waiting.mapped()->respond(std::move(*response));
         });
}

}  // namespace sluice
