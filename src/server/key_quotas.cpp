#include "server/key_quotas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

constexpr double kMinute = 60;
constexpr std::string_view kRateLimited = "rate_limit_exceeded";

// A minute's amount that fills evenly; negative: overdrawn.
class Bucket {
 public:
  // Fills, and follows a changed limit.
  void update(std::int64_t per_minute, TimePoint now) {
    const auto most = static_cast<double>(per_minute);
    if (!most_) {
      left_ = most;
    } else {
      left_ += to_seconds(now - updated_) * *most_ / kMinute;
    }
    most_ = most;
    left_ = std::min(left_, most);
    updated_ = now;
  }
  void forget() { most_.reset(); }
  bool has(double amount) const { return left_ >= std::min(amount, *most_); }
  void take(double amount) { left_ -= amount; }
  // Not below a debt of one minute's amount.
  void take_at_most_all(double amount) {
    left_ = std::min(left_, std::max(left_ - amount, -*most_));
  }
  std::int64_t left() const { return std::max<std::int64_t>(0, static_cast<std::int64_t>(left_)); }
  // Until it holds `amount`.
  double seconds_until(double amount) const {
    return std::max(0.0, (std::min(amount, *most_) - left_) * kMinute / *most_);
  }
  double seconds_until_full() const { return seconds_until(*most_); }

 private:
  std::optional<double> most_;  // absent: there is no limit now
  double left_ = 0;
  TimePoint updated_;
};

// An even part of what several servers share.
std::optional<std::int64_t> part_of(const std::optional<std::int64_t>& limit, std::int32_t parts) {
  if (!limit) return std::nullopt;
  return std::max<std::int64_t>(1, *limit / parts);
}

ApiError limited(std::string_view type, std::string message, double seconds) {
  ApiError error;
  error.status = 429;
  error.type = type;
  error.message = std::move(message);
  error.code = kRateLimited;
  error.retry_after_s = std::max(1, static_cast<int>(std::ceil(std::min(seconds, 86'400.0))));
  return error;
}

// As OpenAI writes it: 250ms, 1.5s, 2m3s.
std::string duration_text(double seconds) {
  const auto ms = static_cast<std::int64_t>(std::ceil(seconds * 1000));
  if (ms < 1000) return fmt::format("{}ms", ms);
  if (ms < 60'000) return fmt::format("{:.3g}s", static_cast<double>(ms) / 1000);
  const std::int64_t whole = (ms + 999) / 1000;
  return fmt::format("{}m{}s", whole / 60, whole % 60);
}

void add_headers(std::vector<http::Header>& headers, std::string_view what, std::int64_t limit,
                 const Bucket& bucket) {
  headers.push_back({fmt::format("x-ratelimit-limit-{}", what), fmt::format("{}", limit)});
  headers.push_back(
      {fmt::format("x-ratelimit-remaining-{}", what), fmt::format("{}", bucket.left())});
  headers.push_back(
      {fmt::format("x-ratelimit-reset-{}", what), duration_text(bucket.seconds_until_full())});
}

}  // namespace

struct KeyQuotas::Use {
  std::string name;
  KeyLimits limits;
  Bucket requests;
  Bucket tokens;
  std::int64_t calls = 0;            // now
  std::int64_t calls_elsewhere = 0;  // as of the last news
  std::int64_t requests_taken = 0;   // since the start
  std::int64_t tokens_taken = 0;
  std::int64_t unfinished_requests = 0;  // in the engine

  void update(TimePoint now) {
    if (limits.requests_per_minute) {
      requests.update(*limits.requests_per_minute, now);
    } else {
      requests.forget();
    }
    if (limits.tokens_per_minute) {
      tokens.update(*limits.tokens_per_minute, now);
    } else {
      tokens.forget();
    }
  }
};

KeyQuotas::Lease& KeyQuotas::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  release();
  use_ = std::move(other.use_);
  requests_ = std::exchange(other.requests_, 0);
  return *this;
}

void KeyQuotas::Lease::release() {
  if (use_ == nullptr) return;
  --use_->calls;
  use_->unfinished_requests -= requests_;
  use_.reset();
}

std::int32_t KeyQuotas::Lease::weight() const {
  return use_ == nullptr ? 1 : static_cast<std::int32_t>(use_->limits.weight.value_or(1));
}

const std::string& KeyQuotas::Lease::name() const {
  CHECK(use_ != nullptr);
  return use_->name;
}

void KeyQuotas::Lease::take_output(std::int64_t tokens) const {
  if (use_ == nullptr) return;
  use_->tokens_taken += tokens;
  if (use_->limits.tokens_per_minute) use_->tokens.take(static_cast<double>(tokens));
}

KeyQuotas::KeyQuotas(const Clock& clock, std::int64_t max_requests)
    : clock_(clock), max_requests_(max_requests) {}

KeyQuotas::Use& KeyQuotas::use_of(const std::string& name, const KeyLimits& limits) {
  auto& use = uses_[name];
  if (use == nullptr) {
    use = std::make_shared<Use>();  // shared with the leases
    use->name = name;
  }
  use->limits = limits;
  use->limits.requests_per_minute = part_of(limits.requests_per_minute, parts_);
  use->limits.tokens_per_minute = part_of(limits.tokens_per_minute, parts_);
  use->limits.concurrency = part_of(limits.concurrency, parts_);
  use->update(clock_.now());
  return *use;
}

std::map<std::string, KeyQuotas::Total> KeyQuotas::totals() const {
  std::map<std::string, Total> totals;
  for (const auto& [name, use] : uses_) {
    totals[name] = {use->requests_taken, use->tokens_taken, use->calls};
  }
  return totals;
}

void KeyQuotas::use_elsewhere(const std::string& name, const KeyLimits& limits, const Total& use) {
  Use& here = use_of(name, limits);
  if (here.limits.requests_per_minute) {
    here.requests.take_at_most_all(static_cast<double>(use.requests));
  }
  if (here.limits.tokens_per_minute) {
    here.tokens.take_at_most_all(static_cast<double>(use.tokens));
  }
  here.calls_elsewhere = use.calls;
}

ApiResult<KeyQuotas::Lease> KeyQuotas::begin(const std::string& name, const KeyLimits& given) {
  Use& use = use_of(name, given);
  const KeyLimits& limits = use.limits;
  // Without news of the others, the part of this server is for its own calls.
  const std::int64_t calls = use.calls + (parts_ == 1 ? use.calls_elsewhere : 0);
  if (limits.concurrency && calls >= *limits.concurrency) {
    return tl::unexpected(limited(
        "requests",
        fmt::format("'{}' has {} calls that are not answered yet, its limit (concurrency); try "
                    "again when one has ended",
                    name, calls),
        1));
  }
  if (limits.requests_per_minute) {
    if (!use.requests.has(1)) {
      return tl::unexpected(limited(
          "requests",
          fmt::format("'{}' has used its {} requests a minute (rpm); try again in {}", name,
                      *limits.requests_per_minute, duration_text(use.requests.seconds_until(1))),
          use.requests.seconds_until(1)));
    }
    use.requests.take(1);
  }
  ++use.requests_taken;
  ++use.calls;
  Lease lease;
  lease.use_ = uses_.at(name);
  return lease;
}

std::optional<ApiError> KeyQuotas::take_prompt(Lease& lease, const Prompt& prompt) {
  if (!lease) return std::nullopt;
  Use& use = *lease.use_;
  const KeyLimits& limits = use.limits;
  use.update(clock_.now());
  if (limits.best_priority && prompt.priority < *limits.best_priority) {
    return bad_field("priority", fmt::format("priority: {} is better than '{}' may ask for; the "
                                             "lowest number for this key is {}",
                                             prompt.priority, use.name, *limits.best_priority));
  }
  if (limits.queue_percent) {
    const std::int64_t most =
        std::max<std::int64_t>(1, max_requests_ * *limits.queue_percent / 100);
    if (use.unfinished_requests + prompt.requests > most) {
      return limited("requests",
                     fmt::format("'{}' may have {} requests in the server at once ({} % of its "
                                 "queue); {} run or wait",
                                 use.name, most, *limits.queue_percent, use.unfinished_requests),
                     1);
    }
  }
  const auto tokens = static_cast<double>(prompt.tokens);
  if (limits.tokens_per_minute) {
    if (!use.tokens.has(std::max(1.0, tokens))) {
      const double wait = use.tokens.seconds_until(std::max(1.0, tokens));
      return limited("tokens",
                     fmt::format("'{}' has {} of its {} tokens a minute left (tpm), and the prompt "
                                 "has {}; try again in {}",
                                 use.name, use.tokens.left(), *limits.tokens_per_minute,
                                 prompt.tokens, duration_text(wait)),
                     wait);
    }
    use.tokens.take(tokens);
  }
  use.tokens_taken += prompt.tokens;
  lease.requests_ = prompt.requests;
  use.unfinished_requests += prompt.requests;
  return std::nullopt;
}

std::vector<http::Header> KeyQuotas::headers(const Lease& lease) const {
  std::vector<http::Header> headers;
  if (!lease) return headers;
  Use& use = *lease.use_;
  use.update(clock_.now());
  if (use.limits.requests_per_minute) {
    add_headers(headers, "requests", *use.limits.requests_per_minute, use.requests);
  }
  if (use.limits.tokens_per_minute) {
    add_headers(headers, "tokens", *use.limits.tokens_per_minute, use.tokens);
  }
  return headers;
}

}  // namespace sluice
