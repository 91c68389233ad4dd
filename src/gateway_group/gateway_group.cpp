#include "gateway_group/gateway_group.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"

namespace sluice {
namespace {

constexpr std::string_view kLive = "live/";
constexpr std::string_view kUse = "use/";
constexpr std::string_view kUsage = "usage/";
constexpr std::string_view kFunctions = "functions";

std::optional<std::int64_t> seconds_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc{} && end == text.data() + text.size();
  if (!is_number || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string group_functions_key(const std::string& prefix) { return prefix + "/functions"; }

std::string group_live_key(const std::string& prefix, const std::string& name) {
  return fmt::format("{}/state/{}{}", prefix, kLive, name);
}

std::string group_usage_key(const std::string& prefix, const std::string& name) {
  return fmt::format("{}/state/{}{}", prefix, kUsage, name);
}

EtcdCall publish_functions(const std::string& prefix, const std::string& text, Publish when) {
  EtcdTransaction transaction;
  const std::string key = group_functions_key(prefix);
  if (when == Publish::kOnlyFirst) transaction.absent = {key};
  transaction.reads = {key};
  transaction.changes = {{key, text}, {prefix + "/state/functions", to_hex(sha256(text))}};
  return etcd_transaction(transaction);
}

GatewayGroup::GatewayGroup(GroupOptions options, const GroupStart& start, EtcdCalls& calls,
                           const Clock& clock, Listener& listener)
    : options_(std::move(options)),
      calls_(calls),
      clock_(clock),
      listener_(listener),
      heard_(clock.now()),
      lease_(options_.ttl_s, calls, clock,
             {.failed = [this](const std::string& cause) { fail(cause); },
              // An attempt that failed before says more.
              .ended =
                  [this](const std::string& cause) {
                    if (cause_.empty()) fail(cause);
                  }}),
      functions_digest_(to_hex(sha256(start.functions))) {
  CHECK(!options_.prefix.empty() && !options_.name.empty() && !options_.process.empty());
  lease_.adopt(start.lease, start.lease_ends);
}

void GatewayGroup::tick() {
  if (ended_) return;
  const TimePoint now = clock_.now();
  lease_.tick();
  if (!is_lost_ && now - heard_ > std::chrono::seconds(options_.ttl_s)) {
    is_lost_ = true;
    listener_.on_lost(cause_.empty() ? "no answer" : cause_);
  }
  if (!calling_ && lease_.is_valid() && now >= next_round_) begin_round();
}

void GatewayGroup::fail(const std::string& cause) {
  cause_ = cause;
  next_round_ = clock_.now() + kRetry;
}

// Without the name, it is claimed; with it, the use is written if it has changed.
void GatewayGroup::begin_round() {
  next_round_ = clock_.now() + kRound;
  GatewayUse use = listener_.use();
  use.process = options_.process;
  std::string text = group_use_json(use);
  if (text.size() > kMaxGroupUse) {
    return fail(fmt::format("the use of {} tenants has more than 1 MiB", use.tenants.size()));
  }
  calling_ = true;
  if (has_name_ && stored_ == text) return read();
  const std::string name = group_live_key(options_.prefix, options_.name);
  EtcdTransaction transaction;
  transaction.reads = {name};
  if (has_name_) {
    transaction.equal = {{name, options_.process, 0, 0}};
  } else {
    transaction.absent = {name};
    transaction.lease = lease_.id();
    transaction.leased = {{name, options_.process}};
  }
  transaction.changes = {{key(std::string(kUse) + options_.name), text}};
  calls_.call(etcd_transaction(transaction),
              [this, text](const Result<std::string>& body) { written(text, body); });
}

bool GatewayGroup::owns_name(const std::optional<std::string>& holder) {
  has_name_ = holder == options_.process;
  if (!holder || has_name_) return has_name_;
  ended_ = true;
  calling_ = false;
  listener_.on_fenced();
  return false;
}

void GatewayGroup::written(const std::string& use, const Result<std::string>& body) {
  if (ended_) return;
  const auto outcome =
      body ? parse_etcd_outcome(*body) : Result<EtcdOutcome>(tl::unexpected(body.error()));
  if (!outcome) {
    calling_ = false;
    return fail(outcome.error().message);
  }
  if (outcome->succeeded) {
    has_name_ = true;
    stored_ = use;
    return read();
  }
  std::optional<std::string> holder;
  if (!outcome->pairs.empty()) holder = outcome->pairs.front().value;
  // A claim whose answer was lost finds the name its own: the next round writes. Without a holder
  // the lease has ended: the next round claims the name.
  static_cast<void>(owns_name(holder));
  calling_ = false;
}

void GatewayGroup::read() {
  calls_.call(
      etcd_range(options_.prefix + "/state/", "", kMaxKeys),
      [this, sent = clock_.now()](const Result<std::string>& body) { read_answered(sent, body); });
}

GroupView GatewayGroup::view_of(const std::vector<EtcdPair>& pairs) {
  GroupView view;
  for (const EtcdPair& pair : pairs) {
    const std::string_view rest = std::string_view(pair.key).substr(key("").size());
    if (rest.starts_with(kLive)) view.live.emplace(rest.substr(kLive.size()));
    if (rest.starts_with(kUsage)) {
      if (const auto seconds = seconds_of(pair.value)) {
        view.usage_written.emplace(rest.substr(kUsage.size()), *seconds);
      }
    }
    if (!rest.starts_with(kUse)) continue;
    const std::string name(rest.substr(kUse.size()));
    if (name == options_.name) continue;
    auto use = parse_group_use(pair.value);
    if (use) {
      bad_uses_.erase(name);
      view.others.emplace(name, *std::move(use));
    } else if (bad_uses_.insert(name).second) {
      log_error(fmt::format("etcd: {} is not understood and does not count: {}", pair.key,
                            use.error().message));
    }
  }
  return view;
}

void GatewayGroup::read_answered(TimePoint sent, const Result<std::string>& body) {
  calling_ = false;
  if (ended_) return;
  const auto range =
      body ? parse_etcd_range(*body) : Result<EtcdRange>(tl::unexpected(body.error()));
  if (!range) return fail(range.error().message);
  if (range->more)
    return fail(fmt::format("there are more than {} keys below {}", kMaxKeys, key("")));
  std::optional<std::string> holder;
  std::string digest;
  for (const EtcdPair& pair : range->pairs) {
    if (!pair.key.starts_with(key(""))) {
      return fail(fmt::format("etcd's answer has a key that is not below {}", key("")));
    }
    if (pair.key == group_live_key(options_.prefix, options_.name)) holder = pair.value;
    if (pair.key == key(std::string(kFunctions))) digest = pair.value;
  }
  if (!owns_name(holder)) return;  // the next round claims it
  heard_ = sent;
  is_lost_ = false;
  cause_.clear();
  listener_.on_round(view_of(range->pairs));
  if (!digest.empty() && digest != functions_digest_) read_functions(std::move(digest));
}

void GatewayGroup::read_functions(std::string digest) {
  calling_ = true;
  calls_.call(etcd_range(group_functions_key(options_.prefix), "", 1),
              [this, digest = std::move(digest)](const Result<std::string>& body) {
                functions_answered(digest, body);
              });
}

void GatewayGroup::functions_answered(const std::string& digest, const Result<std::string>& body) {
  calling_ = false;
  if (ended_) return;
  const auto range =
      body ? parse_etcd_range(*body) : Result<EtcdRange>(tl::unexpected(body.error()));
  if (!range) return fail(range.error().message);
  const bool is_there =
      range->pairs.size() == 1 && range->pairs[0].key == group_functions_key(options_.prefix);
  // Another text: a later one was published meanwhile, and the next round finds its digest.
  if (!is_there || to_hex(sha256(range->pairs[0].value)) != digest) return;
  functions_digest_ = digest;
  listener_.on_functions(range->pairs[0].value);
}

std::optional<EtcdCall> GatewayGroup::resign() {
  ended_ = true;
  const std::int64_t lease = lease_.release();
  if (lease == 0) return std::nullopt;
  return etcd_revoke(lease);
}

}  // namespace sluice
