#include "agents/agent_functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace sluice {

AgentFunctions::AgentFunctions(AgentHost& host, const Clock& clock, std::int32_t max_functions)
    : host_(host), clock_(clock), max_functions_(max_functions) {}

Status AgentFunctions::handle(AgentCommand command) {
  const Duration offset = clock_.now() - command.time;
  offset_ = offset_ ? std::min(*offset_, offset) : offset;
  switch (command.kind) {
    case AgentCommandKind::kPing: return {};
    case AgentCommandKind::kStart: return start(std::move(command));
    case AgentCommandKind::kEnd:
      end(command.instance);
      follow_plan();
      return {};
    case AgentCommandKind::kPlan: return take_plan(std::move(command.plan));
    case AgentCommandKind::kFrame: break;
  }
  const auto found = instances_.find(command.instance);
  if (found == instances_.end() || found->second.loop == nullptr) {
    return invalid_argument(fmt::format(
        "the gateway has sent a frame to instance {}, which does not run", command.instance));
  }
  return pass(found->second, command.instance, *std::move(command.frame));
}

Status AgentFunctions::start(AgentCommand command) {
  const std::uint64_t id = command.instance;
  if (id == 0 || instances_.contains(id)) {
    return invalid_argument(fmt::format("the gateway has started instance {} twice", id));
  }
  const bool full = std::ssize(instances_) >= max_functions_;
  Instance& instance = instances_[id];
  instance.start = std::move(command);
  if (full) {
    fail(id,
         resource_exhausted(fmt::format("the agent runs {} functions, its limit", max_functions_)));
    return {};
  }
  const auto backbone = backbones_.find(instance.start.backbone);
  if (backbone == backbones_.end()) {
    fail(id, not_found(fmt::format("the agent has no backbone '{}'", instance.start.backbone)));
    return {};
  }
  if (backbone->second.load == BackboneLoad::kLoaded) {
    get_adapter(id, instance);
  } else {
    load(backbone->first, backbone->second);
  }
  return {};
}

void AgentFunctions::get_adapter(std::uint64_t id, Instance& instance) {
  if (instance.start.adapter.empty()) return begin(id, instance);
  const auto known = host_.has_adapter(instance.start.backbone, instance.start.adapter);
  if (!known) {
    fail(id, known.error());
  } else if (*known) {
    begin(id, instance);
  } else {
    calls_.fetch_adapter(instance.start.adapter);
  }
}

void AgentFunctions::adapter_came(const std::string& digest, const Result<std::string>& bytes) {
  for (auto& [id, instance] : instances_) {
    if (instance.loop != nullptr || instance.said == EngineState::kFailed ||
        instance.start.adapter != digest) {
      continue;
    }
    const Status added =
        bytes ? host_.add_adapter(instance.start.backbone, digest, *bytes) : Status(bytes.error());
    if (added) {
      begin(id, instance);
    } else {
      fail(id, added.error());
    }
  }
}

void AgentFunctions::begin(std::uint64_t id, Instance& instance) {
  auto started = host_.start(instance.start.backbone, instance.start.adapter, instance.start.tenant,
                             calls_.wake);
  if (!started) return fail(id, started.error());
  instance.loop = std::move(started->loop);
  instance.adapter = started->adapter;
  instance.vocab_size = started->vocab_size;
  calls_.wake();  // it may be ready
}

void AgentFunctions::fail(std::uint64_t id, const Error& error) {
  instances_[id].said = EngineState::kFailed;
  StateFrame state;
  state.state = EngineState::kFailed;
  state.code = error.code;
  state.message = error.message.substr(0, kMaxStateText);
  calls_.output({id, Duration(0), std::move(state)});
}

Status AgentFunctions::pass(Instance& instance, std::uint64_t id, ToFunction frame) {
  if (auto* request = std::get_if<RequestFrame>(&frame)) {
    return submit(instance, id, std::move(*request));
  }
  if (const auto* vocabulary = std::get_if<VocabularyFrame>(&frame)) {
    return instance.grammars.start(*vocabulary, instance.vocab_size);
  }
  if (const auto* grammar = std::get_if<GrammarFrame>(&frame)) {
    return instance.grammars.put(*grammar);
  }
  if (const auto* cancel = std::get_if<CancelFrame>(&frame)) {
    instance.loop->cancel(cancel->request);
  } else if (const auto* choice = std::get_if<EndChoiceFrame>(&frame)) {
    instance.loop->end_choice(choice->request, choice->choice, choice->reason);
  } else if (std::holds_alternative<AskProgressFrame>(frame)) {
    instance.loop->ask_progress();
  } else if (const auto* limit = std::get_if<KvLimitFrame>(&frame)) {
    instance.loop->limit_kv(limit->bytes);
  } else {
    return invalid_argument("the gateway has sent a frame that is not for an agent");
  }
  return {};
}

Status AgentFunctions::submit(Instance& instance, std::uint64_t id, RequestFrame frame) {
  Request& request = frame.request;
  const RequestId number = request.id;
  ASSIGN_OR_RETURN(request.sampling.grammar, instance.grammars.find(frame.grammar));
  request.adapter = instance.adapter;
  request.client_key = instance.start.tenant;
  shift_times(*offset_, request);
  Status status = instance.loop->submit(std::move(request));
  if (status) return {};
  OutputBatch refusal;
  refusal.refused.push_back({number, std::move(status).error()});
  calls_.output({id, instance.loop->use().turn_time, std::move(refusal)});
  return {};
}

void AgentFunctions::collect() {
  OutputBatch batch;
  for (auto& [id, instance] : instances_) {
    if (instance.loop == nullptr) continue;
    // Before the batch, whose calls need a function that is ready.
    const EngineState state = instance.loop->state();
    if (state == EngineState::kReady && instance.said == EngineState::kLoading) {
      instance.said = state;
      StateFrame frame;
      frame.state = state;
      calls_.output({id, instance.loop->use().turn_time, std::move(frame)});
    }
    instance.loop->take(batch);
    const bool has_news = !batch.events.empty() || !batch.refused.empty() || !batch.steps.empty() ||
                          batch.has_progress;
    if (has_news) {
      shift_times(-offset_.value_or(Duration(0)), batch);
      calls_.output({id, instance.loop->use().turn_time, std::move(batch)});
      batch = {};
    }
    if (state == EngineState::kFailed && instance.said != state) {
      const auto failure = instance.loop->failure();
      fail(id, failure ? *failure : internal_error("a function has failed without a reason"));
    }
  }
}

// ---------------------------------------------------------------- backbones

void AgentFunctions::add_backbone(const std::string& name) { backbones_[name] = {}; }

bool AgentFunctions::is_used(const std::string& backbone) const {
  return std::ranges::any_of(instances_, [&](const auto& one) {
    const Instance& instance = one.second;
    const bool waits = instance.loop == nullptr && instance.said != EngineState::kFailed;
    return (waits || instance.loop != nullptr) && instance.start.backbone == backbone;
  });
}

// Without effect while it is being loaded.
void AgentFunctions::load(const std::string& name, Backbone& backbone) {
  if (backbone.load != BackboneLoad::kAbsent) return;
  backbone.load = BackboneLoad::kLoading;
  host_.load_backbone(name, [this, name](const Status& status) { loaded(name, status); });
}

void AgentFunctions::loaded(const std::string& name, const Status& status) {
  Backbone& backbone = backbones_.at(name);
  backbone.load = status ? BackboneLoad::kLoaded : BackboneLoad::kAbsent;
  if (!status) log_error(fmt::format("backbone '{}': {}", name, status.error().message));
  for (auto& [id, instance] : instances_) {
    const bool waits = instance.loop == nullptr && instance.said != EngineState::kFailed &&
                       instance.start.backbone == name;
    if (!waits) continue;
    if (status) {
      get_adapter(id, instance);
    } else {
      fail(id, status.error());
    }
  }
  // After a failed load the next plan tries again.
  if (status) follow_plan();
}

Status AgentFunctions::take_plan(std::vector<PlannedBackbone> plan) {
  for (const PlannedBackbone& one : plan) {
    if (backbones_.contains(one.name)) continue;
    return invalid_argument(
        fmt::format("the gateway's plan has backbone '{}', which this agent lacks", one.name));
  }
  plan_ = std::move(plan);
  follow_plan();
  return {};
}

void AgentFunctions::follow_plan() {
  if (!plan_) return;
  for (auto& [name, backbone] : backbones_) {
    const auto planned = std::ranges::find(*plan_, name, &PlannedBackbone::name);
    const bool wanted = planned != plan_->end();
    if (wanted) load(name, backbone);
    if (backbone.load != BackboneLoad::kLoaded) continue;
    if (!wanted && !is_used(name)) {
      backbone = {BackboneLoad::kAbsent, 0};
      host_.unload_backbone(name);
      continue;
    }
    const auto workers = wanted ? static_cast<std::int32_t>(planned->workers) : 0;
    if (std::exchange(backbone.workers, workers) != workers) host_.keep_workers(name, workers);
  }
}

std::vector<AgentHolding> AgentFunctions::holdings() const {
  std::vector<AgentHolding> all;
  for (const auto& [name, backbone] : backbones_) {
    const std::int64_t bytes = backbone.workers > 0 ? host_.worker_bytes(name) : 0;
    all.push_back({name, backbone.load, backbone.workers, backbone.workers * bytes});
  }
  return all;
}

// ---------------------------------------------------------------- ends

void AgentFunctions::end(std::uint64_t id) {
  const auto found = instances_.find(id);
  if (found == instances_.end()) return;
  auto loop = std::move(found->second.loop);
  instances_.erase(found);
  if (loop == nullptr) return;
  ++ending_;
  host_.end(std::move(loop), [this] { ended(); });
}

void AgentFunctions::ended() {
  if (--ending_ > 0 || !instances_.empty() || !all_ended_) return;
  std::exchange(all_ended_, nullptr)();
}

void AgentFunctions::end_all(std::function<void()> done) {
  offset_.reset();
  plan_.reset();
  while (!instances_.empty()) end(instances_.begin()->first);
  if (ending_ == 0) return done();
  all_ended_ = std::move(done);
}

std::vector<AgentInstance> AgentFunctions::uses() const {
  std::vector<AgentInstance> uses;
  for (const auto& [id, instance] : instances_) {
    if (instance.loop == nullptr) continue;
    uses.push_back({id, instance.loop->use().own_bytes});
  }
  return uses;
}

}  // namespace sluice
