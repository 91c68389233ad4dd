#include "apps/isolated_model.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "apps/exit_code.h"
#include "apps/make_device.h"
#include "base/large_pages.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "base/unix_time.h"
#include "engine/backbone_loader.h"
#include "function/run_function.h"

namespace sluice {
namespace {

// A function needs this beside the backbone and KV memory: for the program, its buffers, frames.
constexpr std::int64_t kOtherBytes = std::int64_t{1} << 30;
// For each thread's stack and heap.
constexpr std::int64_t kThreadBytes = std::int64_t{16} << 20;
// A step reads the weights no slower than this, also if it is the first one, which maps their
// pages, and others use the memory as well.
constexpr std::int64_t kSlowBytesPerSecond = std::int64_t{1} << 30;
// Tasks beside the threads that compute.
constexpr unsigned kOtherTasks = 16;

// Half of the memory that the backbone has left, in equal parts; at most what one engine can use.
Result<std::int64_t> choose_kv_bytes(const EngineOptions& options, const LoadedEngine& alone,
                                     const Device& device, std::int32_t functions) {
  if (options.kv_cache_memory) return *options.kv_cache_memory;
  ASSIGN_OR_RETURN(const MemoryInfo memory, device.memory_info());
  return std::min(alone.kv_bytes, memory.free_bytes / 2 / functions);
}

ProcessEngineLoop::Options loop_options(const EngineOptions& options, bool best_effort,
                                        std::int64_t kv_bytes, std::int64_t shared_bytes) {
  ProcessEngineLoop::Options loop;
  loop.command = {"/proc/self/exe", "function"};
  loop.best_effort = best_effort;
  loop.start.kv_bytes = kv_bytes;
  loop.start.max_num_seqs = options.max_num_seqs;
  loop.start.token_budget = options.token_budget;
  loop.start.follow = options.budget_mode == BudgetMode::kFollow;
  loop.start.block_size = options.block_size;
  loop.start.threads = planned_threads(options.threads).threads;
  loop.start.scheduler = options.scheduler;
  const std::int64_t beside_kv = kOtherBytes + loop.start.threads * kThreadBytes;
  loop.sandbox.memory_bytes = static_cast<std::uint64_t>(shared_bytes + kv_bytes + beside_kv);
  if (options.kv_cache_least) {
    loop.start.kv_least = *options.kv_cache_least;
    loop.memory_beside_kv = beside_kv;
  }
  loop.sandbox.max_tasks = static_cast<unsigned>(loop.start.threads) + kOtherTasks;
  loop.sandbox.cpu_cores = loop.start.threads;
  return loop;
}

void tell_memory(const FunctionSettings& functions, std::int64_t kv_bytes,
                 std::uint64_t backbone_bytes) {
  const std::string each = functions.kv_least > 0
                               ? fmt::format("{} to {}", functions.kv_least >> 20, kv_bytes >> 20)
                               : fmt::format("{}", kv_bytes >> 20);
  log_info(fmt::format(
      "isolation: up to {} function processes with {} MiB of KV memory each; they share the "
      "backbone of {} MiB; no snapshot",
      functions.max_functions, each, backbone_bytes >> 20));
}

// 8 bytes for each page of 4 KiB.
std::size_t page_table_bytes(const Backbone& backbone, const BackboneManifest& manifest) {
  const auto bytes = static_cast<std::size_t>(manifest.bytes);
  return (bytes - std::min(bytes, backbone.in_large_pages)) / 512;
}

// Tells what the processes of a large model take without large pages.
void warn_of_page_tables(std::size_t bytes) {
  if (bytes < std::size_t{1} << 20) return;
  log_warning(fmt::format(
      "isolation: the backbone lies in pages of 4 KiB, because the system gives shared memory no "
      "large ones (shmem_enabled: {}); each process has {} MiB of page tables for it; to avoid "
      "that: "
      "{}",
      shared_large_page_rule(), bytes >> 20, kLargePageAdvice));
}

// The server's checks of a function need these.
OutstandingRequests::Model add_facts(const LoadedEngine& alone, ProcessEngineLoop::Options& loop) {
  loop.vocab_size = alone.engine->limits().vocab_size;
  loop.hidden_size = alone.engine->limits().hidden_size;
  loop.eos_ids = alone.eos_ids;
  return {loop.vocab_size, loop.hidden_size, loop.eos_ids};
}

std::int64_t largest_adapter(const LoadedModel& model) {
  if (model.adapters == nullptr) return 0;
  return static_cast<std::int64_t>(model.adapters->format().slot_bytes(model.config));
}

}  // namespace

TurnKeeper::Options turn_options(const EngineOptions& options, const FunctionSettings& functions) {
  TurnKeeper::Options turns;
  const ThreadPlan plan = planned_threads(options.threads);
  turns.threads = plan.threads;
  turns.places = std::max(1, plan.cores / plan.threads);
  if (!functions.turns) turns.places += functions.max_functions + functions.warm_workers;
  return turns;
}

FunctionTurns function_turns(const TurnService& service) {
  const TurnKeeper::Totals totals = service.totals();
  FunctionTurns turns{{}, totals.suspensions, totals.kills};
  for (const TurnLedger::Usage& usage : totals.usage) {
    const bool unused = usage.tenant.empty() && usage.time == Duration(0);  // a spare process's
    if (!unused) turns.uses.push_back({usage.tenant, usage.time});
  }
  return turns;
}

Result<TenantLoops::MakeLoop> IsolatedModel::load(
    const std::string& directory, const std::string& name, const EngineOptions& options,
    const FunctionSettings& functions, std::int32_t max_requests, TurnService& turns,
    const Clock& clock, StartupTimeline& timeline, const ServedEngineOptions& served) {
  EngineOptions with_model = options;
  with_model.adapters.model = directory;
  const auto pool = make_pool(options);
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, make_device(options, *pool));
  timeline.mark("device");
  ASSIGN_OR_RETURN(const Backbone written, make_backbone(directory, options, *device, *pool));
  ASSIGN_OR_RETURN(backbone_, read_only(written));
  timeline.mark("backbone");
  ASSIGN_OR_RETURN(const LoadedEngine alone,
                   load_engine_on_backbone(backbone_, with_model, *device, *pool, clock, timeline));
  ASSIGN_OR_RETURN(const std::int64_t kv_bytes,
                   choose_kv_bytes(options, alone, *device, functions.max_functions));
  Snapshot none;
  ASSIGN_OR_RETURN(ServedText text, load_served_text(directory, none, served.chat_template));
  model_ = make_served_model(std::move(text), name, unix_seconds(), facts_of(alone));
  set_answer_formats(served.parsers, *model_);
  model_->grammars->make_images();
  model_->local_time = served.local_time;
  timeline.mark("tokenizer");
  const std::int64_t blocks = alone.kv_blocks * kv_bytes / alone.kv_bytes;
  cache_config_ = {alone.block_size, static_cast<std::int32_t>(blocks), alone.kv_identity.kv_dtype,
                   true};
  ASSIGN_OR_RETURN(const BackboneManifest manifest, open_backbone(backbone_));
  directory_ = directory;
  options_ = options;
  digest_ = manifest.model;
  weight_bytes_ = static_cast<std::int64_t>(manifest.bytes);
  ProcessEngineLoop::Options loop =
      loop_options(options, functions.best_effort, kv_bytes,
                   static_cast<std::int64_t>(manifest.bytes) + largest_adapter(alone));
  loop.start.max_requests = max_requests;
  loop.slow_step = from_seconds(static_cast<double>(weight_bytes_) / kSlowBytesPerSecond);
  if (options.kv_cache_least) loop.kv_block_bytes = alone.kv_block_bytes;
  checks_ = add_facts(alone, loop);
  tell_memory(functions, kv_bytes, manifest.bytes);
  warn_of_page_tables(page_table_bytes(backbone_, manifest));
  const auto make = [this, &turns, &clock](ProcessEngineLoop::Options one,
                                           std::function<void()> wake) {
    auto made = std::make_unique<ProcessEngineLoop>(std::move(one), backbone_, turns, clock,
                                                    std::move(wake));
    made->start();
    return made;
  };
  ProcessEngineLoop::Options generic = loop;
  generic.start.touch = true;
  if (alone.adapters) generic.start.lora_rank = alone.adapters->format().max_rank;
  warm_ = std::make_unique<WarmWorkers>(
      functions.warm_workers, [make, generic](Duration pause, std::function<void()> wake) {
        ProcessEngineLoop::Options one = generic;
        one.start_after = pause;
        return make(std::move(one), std::move(wake));
      });
  RETURN_IF_ERROR(warm_->start());
  timeline.mark("functions");
  return TenantLoops::MakeLoop([this, make, loop, adapters = alone.adapters](
                                   std::int32_t adapter, std::function<void()> wake) {
    SharedContent content = adapter < 0 ? nullptr : adapters->content(adapter);
    if (auto worker = warm_->take()) {
      worker->specialize(std::move(content), std::move(wake));
      return worker;
    }
    ProcessEngineLoop::Options one = loop;
    one.adapter = std::move(content);
    return make(std::move(one), std::move(wake));
  });
}

void IsolatedModel::unload() {
  warm_->clear();
  backbone_ = {};
}

Status IsolatedModel::reload() {
  const auto pool = make_pool(options_);
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, make_device(options_, *pool));
  ASSIGN_OR_RETURN(const Backbone written, make_backbone(directory_, options_, *device, *pool));
  ASSIGN_OR_RETURN(const BackboneManifest manifest, open_backbone(written));
  if (manifest.model != digest_) {
    return unavailable(
        fmt::format("{}: the checkpoint has changed since the start; restart the server to use it",
                    directory_));
  }
  ASSIGN_OR_RETURN(backbone_, read_only(written));
  return {};
}

int run_function_command() {
  struct stat socket{};
  if (fstat(FunctionDescriptors::kSocket, &socket) != 0 || !S_ISSOCK(socket.st_mode)) {
    return report_error(invalid_argument("function is not for users: `sluice serve --isolation "
                                         "process` starts it, with a socket as its input"),
                        kExitUsage);
  }
  return run_function([](ThreadPool& pool) { return make_device(EngineOptions(), pool); });
}

}  // namespace sluice
