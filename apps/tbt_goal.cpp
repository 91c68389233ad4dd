#include "apps/tbt_goal.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/measure_machine.h"
#include "base/log.h"
#include "engine/engine_loader.h"
#include "profile/token_budget.h"
#include "scheduler/policy.h"

namespace sluice {
namespace {

// A start should take little time and memory, so this measures fewer and shorter steps than `sluice
// profile`.
constexpr Duration kQuickTime = std::chrono::seconds(10);
constexpr std::int32_t kQuickTokens = 512;
constexpr std::int64_t kQuickKvBytes = std::int64_t{512} << 20;

Result<MachineProfile> measure_quickly(const std::string& directory, const EngineOptions& options,
                                       Device& device, ThreadPool& pool, const Clock& clock,
                                       const std::string& path) {
  log_info(
      fmt::format("there is no profile of this model on this machine yet: measuring one now, about "
                  "{} s; `sluice profile {}` makes a better one",
                  std::chrono::duration_cast<std::chrono::seconds>(kQuickTime).count(), directory));
  MeasureOptions measure;
  measure.profiler.time_limit = kQuickTime;
  measure.max_tokens = kQuickTokens;
  measure.max_kv_bytes = kQuickKvBytes;
  auto profile = measure_machine(directory, options, device, pool, clock, measure);
  if (!profile) {
    return with_context("no profile could be made (sluice profile makes one)",
                        std::move(profile).error());
  }
  const Status saved =
      path.empty() ? Status(not_found("HOME is not set")) : save_profile(*profile, path);
  if (!saved) log_warning(fmt::format("the profile is not kept: {}", saved.error().message));
  return profile;
}

SnapshotKey profile_key(const ProfileIdentity& identity) {
  return {{"model", identity.model_digest},
          {"dtype", identity.dtype},
          {"device", identity.device},
          {"machine", identity.device_description},
          {"threads", fmt::format("{}", identity.threads)}};
}

std::optional<MachineProfile> profile_of_snapshot(const ProfileIdentity& identity,
                                                  Snapshot& snapshot) {
  const auto bytes = snapshot.find(kMachineProfileSection, profile_key(identity));
  if (!bytes) return std::nullopt;
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  auto profile = parse_profile(text, "the machine profile");
  if (profile && profile->identity == identity) {
    snapshot.restored(kMachineProfileSection);
    return *std::move(profile);
  }
  snapshot.rejected(kMachineProfileSection,
                    profile ? "it names another machine or model" : profile.error().message);
  return std::nullopt;
}

// The profile that lies in the cache folder, if there is one.
void offer_kept_profile(const ProfileIdentity& identity, Snapshot& snapshot) {
  const std::string path = default_profile_path(identity);
  if (path.empty() || !load_profile(path)) return;
  snapshot.offer(kMachineProfileSection, profile_key(identity),
                 [path]() -> Result<std::vector<std::byte>> {
                   ASSIGN_OR_RETURN(const MachineProfile profile, load_profile(path));
                   const std::string text = profile_to_json(profile);
                   const auto bytes = std::as_bytes(std::span(text));
                   return std::vector(bytes.begin(), bytes.end());
                 });
}

Result<MachineProfile> find_profile(const std::string& directory, const ModelIdentity& model,
                                    const EngineOptions& options, Device& device, ThreadPool& pool,
                                    const Clock& clock, Snapshot& snapshot) {
  const ProfileIdentity identity = profile_identity(model, device, pool);
  if (auto profile = profile_of_snapshot(identity, snapshot)) return *std::move(profile);
  const std::string path = default_profile_path(identity);
  if (!path.empty()) {
    auto profile = load_profile(path);
    if (profile && profile->identity == identity) {
      log_info(fmt::format("profile: {}", path));
      return profile;
    }
    if (profile) {
      return invalid_argument(
          fmt::format("{}: is a profile of another model or machine; remove it", path));
    }
    if (profile.error().code != ErrorCode::kNotFound) return profile.error();
  }
  return measure_quickly(directory, options, device, pool, clock, path);
}

// A start without a profile: nothing keeps a goal then.
EngineOptions without_profile(const EngineOptions& options, const Error& problem) {
  EngineOptions chosen = options;
  const auto policy = make_policy(options.scheduler);
  const bool follows = policy && (*policy)->plans_by_time();
  chosen.budget_mode = follows ? BudgetMode::kFollow : BudgetMode::kTokens;
  log_warning(fmt::format(
      "{}; the token budget {} instead, and keeps no goal", problem.message,
      follows ? std::string("follows measured steps") : fmt::format("is {}", chosen.token_budget)));
  return chosen;
}

// Where `problem` is that no budget keeps the goal with the reference load: says what is kept.
void warn_of_part(const Error& problem, const PartOfGoal& part) {
  const std::string kept =
      part.context ? fmt::format("it is kept with contexts of up to {} tokens", *part.context)
                   : "steps are as short as they can be";
  log_warning(fmt::format("{}; without that {}", problem.message, kept));
}

struct Chosen {
  EngineOptions options;
  std::string what;
};

Chosen choose(const MachineProfile& profile, const ReferenceLoad& load, Duration goal,
              const EngineOptions& options) {
  Chosen chosen{options, {}};
  PartOfGoal part;
  const auto whole = choose_token_budget(profile, load, goal);
  if (whole) {
    part.token_budget = *whole;
  } else {
    part = keep_part(profile, load, goal);
    warn_of_part(whole.error(), part);
  }
  if (options.budget_mode == BudgetMode::kTime) {
    TimeBudgetChoice choice = time_budget_for(profile, load, goal);
    chosen.options.token_budget = choice.token_budget;
    chosen.options.time_budget = choice.time;
    chosen.what = fmt::format("time, at most {} tokens", choice.token_budget);
  } else {
    chosen.options.token_budget = part.token_budget;
    chosen.options.budget_mode = BudgetMode::kTokens;
    chosen.what = fmt::format("{}", part.token_budget);
  }
  return chosen;
}

}  // namespace

Result<EngineOptions> with_token_budget(const std::string& directory, const EngineOptions& options,
                                        Device& device, ThreadPool& pool, const Clock& clock,
                                        Snapshot& snapshot) {
  const bool collects = snapshot.mode() == SnapshotMode::kCollect;
  if (!needs_profile(options.budget_mode) && !collects) return options;
  ASSIGN_OR_RETURN(const ModelIdentity model, identify_model(directory, options));
  if (!needs_profile(options.budget_mode)) {
    offer_kept_profile(profile_identity(model, device, pool), snapshot);
    return options;
  }
  const auto profile = find_profile(directory, model, options, device, pool, clock, snapshot);
  if (!profile) {
    if (profile.error().code == ErrorCode::kCancelled) return profile.error();
    return without_profile(options, profile.error());
  }
  if (collects) offer_kept_profile(profile->identity, snapshot);
  const ReferenceLoad load = reference_load(options.max_num_seqs, model.max_model_len);
  const Duration goal = options.tbt_slo.value_or(paper_goals(*profile).strict);
  const Chosen chosen = choose(*profile, load, goal, options);
  log_info(
      fmt::format("token budget: {} (TBT goal {:.6g} ms{}; {} decodes with contexts of {}; "
                  "predictions x {:.2f}{})",
                  chosen.what, to_milliseconds(goal), options.tbt_slo ? "" : ", 5 decode steps",
                  load.decode_rows, load.context, prediction_margin(*profile),
                  chosen.options.time_budget ? " at first, then as measured steps say" : ""));
  return chosen.options;
}

}  // namespace sluice
