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
  const std::string& digest = instance.start.adapter;
  const std::string& backbone = instance.start.backbone;
  if (digest.empty() || backbones_.at(backbone).adapters.contains(digest)) {
    return begin(id, instance);
  }
  fetch(backbone, digest);
}

void AgentFunctions::begin(std::uint64_t id, Instance& instance) {
  auto started = host_.start(instance.start.backbone, instance.start.adapter, instance.start.tenant,
                             calls_.wake);
  if (!started) return fail(id, started.error());
  instance.loop = std::move(started->loop);
  instance.number = ++loops_;
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
  if (instance.prepares) {
    instance.waiting.push_back(std::move(frame));
    return {};
  }
  if (auto* request = std::get_if<RequestFrame>(&frame)) {
    return submit(instance, id, std::move(*request));
  }
  if (auto* vocabulary = std::get_if<VocabularyFrame>(&frame)) {
    prepare(instance, id,
            [frame = std::move(*vocabulary), size = instance.vocab_size](
                FunctionGrammars& grammars) { return grammars.start(frame, size); });
    return {};
  }
  if (auto* grammar = std::get_if<GrammarFrame>(&frame)) {
    prepare(instance, id, [frame = std::move(*grammar)](FunctionGrammars& grammars) {
      return grammars.put(frame);
    });
    return {};
  }
  if (const auto* cancel = std::get_if<CancelFrame>(&frame)) {
    instance.loop->cancel(cancel->request);
  } else if (const auto* choice = std::get_if<EndChoiceFrame>(&frame)) {
    instance.loop->end_choice(choice->request, choice->choice, choice->reason);
  } else if (std::holds_alternative<AskProgressFrame>(frame)) {
    instance.loop->ask_progress();
  } else {
    return invalid_argument("the gateway has sent a frame that is not for an agent");
  }
  return {};
}

void AgentFunctions::prepare(Instance& instance, std::uint64_t id,
                             std::function<Status(FunctionGrammars&)> work) {
  instance.prepares = true;
  host_.run_aside(
      [work = std::move(work), grammars = instance.grammars] { return work(*grammars); },
      [this, id, grammars = instance.grammars](const Status& status) {
        prepared(id, grammars.get(), status);
      });
}

// The instance may have ended, and another session may use its number again.
void AgentFunctions::prepared(std::uint64_t id, const FunctionGrammars* grammars,
                              const Status& status) {
  const auto found = instances_.find(id);
  if (found == instances_.end() || found->second.grammars.get() != grammars) return;
  Instance& instance = found->second;
  instance.prepares = false;
  if (!status) return calls_.broken(status.error());
  while (!instance.prepares && !instance.waiting.empty()) {
    ToFunction frame = std::move(instance.waiting.front());
    instance.waiting.pop_front();
    if (const Status passed = pass(instance, id, std::move(frame)); !passed) {
      return calls_.broken(passed.error());
    }
  }
}

Status AgentFunctions::submit(Instance& instance, std::uint64_t id, RequestFrame frame) {
  Request& request = frame.request;
  const RequestId number = request.id;
  ASSIGN_OR_RETURN(request.sampling.grammar, instance.grammars->find(frame.grammar));
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

void AgentFunctions::add_backbone(const std::string& name, bool loaded) {
  backbones_[name] = {.load = loaded ? BackboneLoad::kLoaded : BackboneLoad::kAbsent};
}

bool AgentFunctions::is_used(const std::string& backbone) const {
  return std::ranges::any_of(instances_, [&](const auto& one) {
    const Instance& instance = one.second;
    return (waits(instance) || instance.loop != nullptr) && instance.start.backbone == backbone;
  });
}

// Without effect while it is being loaded.
void AgentFunctions::load(const std::string& name, Backbone& backbone) {
  if (backbone.load != BackboneLoad::kAbsent) return;
  backbone.load = BackboneLoad::kLoading;
  ++load_changes_;
  host_.load_backbone(name, [this, name](const Status& status) { loaded(name, status); });
}

void AgentFunctions::unload(const std::string& name, Backbone& backbone) {
  for (const auto& [digest, took] : backbone.adapters) host_.remove_adapter(name, digest);
  backbone = {.load = BackboneLoad::kAbsent};
  ++load_changes_;
  host_.unload_backbone(name);
}

bool AgentFunctions::make_room() {
  bool any = false;
  for (auto& [name, backbone] : backbones_) {
    if (backbone.load != BackboneLoad::kLoaded || is_used(name)) continue;
    unload(name, backbone);
    any = true;
  }
  for (auto& [name, backbone] : backbones_) {
    any = any || backbone.workers > 0;
    if (std::exchange(backbone.workers, 0) > 0) host_.keep_workers(name, 0);
    any = std::erase_if(backbone.adapters,
                        [&](const auto& one) {
                          if (is_used(name, one.first)) return false;
                          host_.remove_adapter(name, one.first);
                          return true;
                        }) > 0 ||
          any;
  }
  if (plan_) {
    std::erase_if(*plan_, [&](const PlannedBackbone& one) { return !is_used(one.name); });
    for (PlannedBackbone& one : *plan_) one = {one.name, 0, {}};
  }
  return any;
}

void AgentFunctions::loaded(const std::string& name, const Status& status) {
  Backbone& backbone = backbones_.at(name);
  backbone.load = status ? BackboneLoad::kLoaded : BackboneLoad::kAbsent;
  ++load_changes_;
  const bool is_short = !status && status.error().code == ErrorCode::kResourceExhausted;
  if (is_short && is_used(name) && !backbone.made_room && make_room()) {
    log_warning(fmt::format("backbone '{}': {}; all that is idle leaves memory for it", name,
                            status.error().message));
    backbone.made_room = true;
    return load(name, backbone);
  }
  backbone.made_room = false;
  if (!status) log_error(fmt::format("backbone '{}': {}", name, status.error().message));
  for (auto& [id, instance] : instances_) {
    if (!waits(instance) || instance.start.backbone != name) continue;
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

PlannedBackbone* AgentFunctions::planned(const std::string& backbone) {
  const auto found = std::ranges::find(*plan_, backbone, &PlannedBackbone::name);
  return found == plan_->end() ? nullptr : &*found;
}

void AgentFunctions::follow_plan() {
  if (!plan_) return;
  for (auto& [name, backbone] : backbones_) {
    const PlannedBackbone* const wanted = planned(name);
    if (wanted != nullptr) load(name, backbone);
    if (backbone.load != BackboneLoad::kLoaded) continue;
    if (wanted == nullptr && !is_used(name)) {
      unload(name, backbone);
      continue;
    }
    const auto workers = wanted == nullptr ? 0 : static_cast<std::int32_t>(wanted->workers);
    if (std::exchange(backbone.workers, workers) != workers) host_.keep_workers(name, workers);
    follow_adapters(name, backbone);
  }
  fetch_planned();
}

std::vector<AgentHolding> AgentFunctions::holdings() const {
  std::vector<AgentHolding> all;
  for (const auto& [name, backbone] : backbones_) {
    const std::int64_t bytes = backbone.workers > 0 ? host_.worker_bytes(name) : 0;
    all.push_back({name, backbone.load, backbone.workers, backbone.workers * bytes});
  }
  return all;
}

// ---------------------------------------------------------------- adapters

bool AgentFunctions::is_used(const std::string& backbone, const std::string& digest) const {
  return std::ranges::any_of(instances_, [&](const auto& one) {
    const Instance& instance = one.second;
    return (waits(instance) || instance.loop != nullptr) && instance.start.backbone == backbone &&
           instance.start.adapter == digest;
  });
}

bool AgentFunctions::is_planned(const std::string& backbone, const std::string& digest) {
  const PlannedBackbone* const plan = planned(backbone);
  return plan != nullptr && std::ranges::find(plan->adapters, digest) != plan->adapters.end();
}

void AgentFunctions::fetch(const std::string& backbone, const std::string& digest) {
  if (!coming_.try_emplace({backbone, digest}, Way{clock_.now()}).second) return;
  calls_.fetch_adapter(digest);
}

void AgentFunctions::adapter_came(const std::string& digest, const Result<std::string>& bytes) {
  std::vector<Coming> here;
  for (auto& [adapter, way] : coming_) {
    if (adapter.second == digest && !std::exchange(way.came, true)) here.push_back(adapter);
  }
  for (const Coming& adapter : here) {
    const auto done = [this, adapter, since = coming_.at(adapter).since](const Status& status) {
      adapter_added(adapter, clock_.now() - since, status);
    };
    if (bytes) {
      host_.add_adapter(adapter.first, digest, *bytes, done);
    } else {
      done(Status(bytes.error()));
    }
  }
}

// It may be one of an earlier session: then it is there, too.
void AgentFunctions::adapter_added(const Coming& adapter, Duration took, const Status& status) {
  const auto& [name, digest] = adapter;
  coming_.erase(adapter);
  Backbone& backbone = backbones_.at(name);
  const bool is_loaded = backbone.load == BackboneLoad::kLoaded;
  if (status && backbone.load == BackboneLoad::kAbsent) {
    host_.remove_adapter(name, digest);
  } else if (status) {
    backbone.adapters[digest] = took;
  } else {
    log_error(fmt::format("an adapter of backbone '{}': {}", name, status.error().message));
    // The next plan tries again.
    PlannedBackbone* const plan = plan_ ? planned(name) : nullptr;
    if (plan != nullptr) std::erase(plan->adapters, digest);
  }
  for (auto& [id, instance] : instances_) {
    if (!is_loaded || !waits(instance) || instance.start.backbone != name ||
        instance.start.adapter != digest) {
      continue;
    }
    if (status) {
      begin(id, instance);
    } else {
      fail(id, status.error());
    }
  }
  follow_plan();
}

// REQUIRES: there is a plan.
void AgentFunctions::follow_adapters(const std::string& name, Backbone& backbone) {
  std::erase_if(backbone.adapters, [&](const auto& one) {
    if (is_planned(name, one.first) || is_used(name, one.first)) return false;
    host_.remove_adapter(name, one.first);
    return true;
  });
}

// REQUIRES: there is a plan.
void AgentFunctions::fetch_planned() {
  if (!coming_.empty()) return;
  for (const auto& [name, backbone] : backbones_) {
    const PlannedBackbone* const plan = planned(name);
    if (plan == nullptr || backbone.load != BackboneLoad::kLoaded) continue;
    for (const std::string& digest : plan->adapters) {
      if (!backbone.adapters.contains(digest)) return fetch(name, digest);
    }
  }
}

std::vector<AgentAdapter> AgentFunctions::adapters() const {
  std::vector<AgentAdapter> all;
  for (const auto& [name, backbone] : backbones_) {
    for (const auto& [digest, took] : backbone.adapters) {
      if (all.size() < kMaxAgentAdapters) all.push_back({name, digest, took});
    }
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
  const std::int64_t held = loop->kv().held;  // a loop that ends cannot take more
  ending_kv_ += held;
  host_.end(std::move(loop), [this, held] {
    ending_kv_ -= held;
    ended();
  });
}

void AgentFunctions::ended() {
  if (--ending_ > 0 || !instances_.empty() || !all_ended_) return;
  std::exchange(all_ended_, nullptr)();
}

void AgentFunctions::end_all(std::function<void()> done) {
  offset_.reset();
  plan_.reset();
  coming_.clear();
  while (!instances_.empty()) end(instances_.begin()->first);
  if (ending_ == 0) return done();
  all_ended_ = std::move(done);
}

std::vector<DividedKv::Kv> AgentFunctions::kv(std::int64_t& ending) const {
  std::vector<Kv> all;
  for (const auto& [id, instance] : instances_) {
    if (instance.loop != nullptr) all.push_back({instance.number, instance.loop->kv()});
  }
  ending = ending_kv_;
  return all;
}

void AgentFunctions::limit_kv(std::uint64_t loop, std::int64_t bytes) {
  for (auto& [id, instance] : instances_) {
    if (instance.loop != nullptr && instance.number == loop) instance.loop->limit_kv(bytes);
  }
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
