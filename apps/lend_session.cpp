#include "apps/lend_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/memory_size.h"
#include "device/cpu/host_memory.h"
#include "membership/member_table.h"

namespace sluice {
namespace {

LendingAgentOptions agent_options(const LendSettings& settings) {
  return {.party = lend_party_name(),
          .device = settings.device,
          .key_prefix = random_lend_word(),
          .least = settings.least,
          .most = settings.most};
}

// "MIN-MAX", which becomes MAX.
Status read_bounds(std::string& text, LendSettings& settings) {
  const std::size_t dash = text.find('-');
  ASSIGN_OR_RETURN(settings.least,
                   parse_memory_size("MIN of --kv-cache-memory", text.substr(0, dash)));
  text.erase(0, dash + 1);
  ASSIGN_OR_RETURN(settings.most, parse_memory_size("MAX of --kv-cache-memory", text));
  if (settings.least <= settings.most) return {};
  return invalid_argument("--kv-cache-memory MIN-MAX: MIN is above MAX");
}

Status read_pages(const LendArguments& arguments, LendSettings& settings) {
  if (!arguments.lend_pages.empty() && !arguments.borrow_pages.empty()) {
    return invalid_argument("--lend-pages and --borrow-pages exclude each other");
  }
  if (!arguments.lend_pages.empty()) {
    ASSIGN_OR_RETURN(settings.lend_pages, parse_memory_size("--lend-pages", arguments.lend_pages));
    if (settings.lend_pages > settings.most - settings.least) {
      return invalid_argument(
          "--lend-pages is memory that the server itself uses when it is busy, so it must be at "
          "most MAX less MIN of --kv-cache-memory MIN-MAX");
    }
  }
  if (!arguments.borrow_pages.empty()) {
    ASSIGN_OR_RETURN(const std::int64_t most,
                     parse_memory_size("--borrow-pages", arguments.borrow_pages));
    settings.borrowed = std::make_shared<LentMemory>(most);  // shared with the tier
  }
  return {};
}

}  // namespace

Result<std::optional<LendSettings>> read_lend_settings(const LendArguments& arguments,
                                                       std::string& kv_cache_memory) {
  const std::size_t dash = kv_cache_memory.find('-');
  if (arguments.url.empty()) {
    if (!arguments.token_file.empty() || !arguments.device.empty() ||
        !arguments.lend_pages.empty() || !arguments.borrow_pages.empty()) {
      return invalid_argument(
          "--lend-token-file, --lend-device, --lend-pages and --borrow-pages need --lend URL");
    }
    if (dash == std::string::npos) return std::nullopt;
    LendSettings settings;
    RETURN_IF_ERROR(read_bounds(kv_cache_memory, settings));
    return std::optional(std::move(settings));
  }
  if (dash == std::string::npos) {
    return invalid_argument(
        "--lend needs --kv-cache-memory MIN-MAX, such as 1GiB-12GiB: the server always has MIN, "
        "and borrows up to MAX");
  }
  if (arguments.token_file.empty()) {
    return invalid_argument("--lend needs --lend-token-file, the token of the coordinator");
  }
  ASSIGN_OR_RETURN(const http::BaseUrl url, [&]() -> Result<http::BaseUrl> {
    auto parsed = http::parse_base_url(arguments.url);
    if (!parsed) return with_context("--lend", std::move(parsed).error());
    return parsed;
  }());
  ASSIGN_OR_RETURN(BearerToken token, BearerToken::load(arguments.token_file));
  if (!arguments.device.empty() && !is_member_name(arguments.device)) {
    return invalid_argument(
        fmt::format("--lend-device must be {}, got '{}'", kMemberNameRule, arguments.device));
  }
  LendSettings settings{.url = url,
                        .url_text = arguments.url,
                        .token = std::move(token),
                        .device = arguments.device.empty() ? "cpu" : arguments.device};
  RETURN_IF_ERROR(read_bounds(kv_cache_memory, settings));
  RETURN_IF_ERROR(read_pages(arguments, settings));
  return std::optional(std::move(settings));
}

Result<std::unique_ptr<LendSession>> LendSession::open(const LendSettings& settings,
                                                       http::EventLoop& loop, const Clock& clock,
                                                       Show show) {
  auto session =
      std::unique_ptr<LendSession>(new LendSession(settings, loop, clock, std::move(show)));
  if (!settings.token) return session;
  LendSession* const raw = session.get();
  ASSIGN_OR_RETURN(
      session->link_,
      PartyLink::open(settings.url, *settings.token, loop,
                      {.answer = [raw](const LendAnswer& answer) { raw->take(answer); },
                       .failed = [raw](const std::string& cause) { raw->fail(cause); }}));
  if (settings.lend_pages > 0) {
    ASSIGN_OR_RETURN(session->lent_, PageLendSession::open(settings, loop, clock));
  }
  if (settings.borrowed) {
    ASSIGN_OR_RETURN(session->borrowed_, PageBorrowSession::open(settings, loop, clock));
  }
  return session;
}

LendSession::LendSession(const LendSettings& settings, http::EventLoop& loop, const Clock& clock,
                         Show show)
    : url_(settings.url_text),
      least_(settings.least),
      most_(settings.most),
      loop_(loop),
      clock_(clock),
      show_(std::move(show)),
      agent_(agent_options(settings)),
      shared_(settings.token.has_value()),
      pressure_(settings.least, settings.most) {}

void LendSession::start(std::unique_ptr<LimitedKv> kv) {
  kv_ = std::move(kv);
  tick();
}

void LendSession::tick() {
  look();
  send();
  loop_.after(kTick, [this] { tick(); });
}

void LendSession::look() {
  LendingLoad load = kv_->load(set_ == 0 ? least_ : set_);
  watch_pressure(load.backed);
  const bool pressed = pressure_.cap().has_value();
  if (lent_) lent_->look(load, agent_.limit(), pressed);
  if (borrowed_) borrowed_->look();
  // The coordinator's part of it.
  const std::int64_t own = lent_ ? lent_->own_bytes() : 0;
  load.used = std::max<std::int64_t>(load.used - own, 0);
  load.backed = std::max<std::int64_t>(load.backed - own, 0);
  load.limit = agent_.limit();
  // More could not be used.
  load.slots_full = load.slots_full || pressed;
  agent_.update(clock_.now(), load);
  std::int64_t limit = shared_ ? std::min(agent_.limit() + own, most_) : most_;
  if (pressed) limit = std::max(least_, std::min(limit, *pressure_.cap()));
  set_ = limit;
  kv_->limit(clock_.now(), limit);
  show_({.limit_bytes = limit,
         .borrowed_bytes = agent_.borrowed(),
         .joined = agent_.state() == LendingState::kJoined,
         .recalls = agent_.recalls(),
         .pages_lent_bytes = lent_ ? lent_->lent_bytes() : 0,
         .pages_overdue_bytes = lent_ ? lent_->overdue_bytes() : 0,
         .pages_revoked = lent_ ? lent_->revoked() : 0,
         .pages_borrowed_bytes = borrowed_ ? borrowed_->borrowed_bytes() : 0,
         .pressed = pressed});
  tell();
}

void LendSession::watch_pressure(std::int64_t backed) {
  const TimePoint now = clock_.now();
  if (!pressure_known_ || now < next_pressure_) return;
  next_pressure_ = now + kPressureTick;
  const auto state = read_memory_state("/");
  if (!state) {
    pressure_known_ = false;
    return log_warning(
        fmt::format("--kv-cache-memory: {}; KV memory does not shrink when memory is short",
                    state.error().message));
  }
  const bool before = pressure_.cap().has_value();
  pressure_.look(now, {.headroom = state->left, .stalled = state->stalled}, backed);
  if (pressure_.cap().has_value() == before) return;
  if (before) return log_info("--kv-cache-memory: the system has memory again");
  log_info(
      fmt::format("--kv-cache-memory: the system is short of memory ({} MiB are left); KV "
                  "memory shrinks down to {} MiB",
                  state->left >> 20, least_ >> 20));
}

void LendSession::send() {
  if (!shared_) return;
  if (!kv_->ready()) return;
  if (const auto message = agent_.next(clock_.now())) link_->send(*message);
  if (lent_) lent_->send();
  if (borrowed_) borrowed_->send();
}

void LendSession::take(const LendAnswer& answer) {
  agent_.answer(answer);
  if (answer.fault != LendFault::kNone) cause_ = answer.message;
  // The answer may have changed the limit, or ask for another message at once.
  look();
  loop_.post([this] { send(); });
}

void LendSession::fail(const std::string& cause) {
  cause_ = cause;
  agent_.failed(clock_.now());
  look();
}

void LendSession::tell() {
  if (!shared_) return;
  const LendingState state = agent_.state();
  const bool alone = state == LendingState::kAlone;
  // A coordinator may come late, and refuse the token.
  const bool other_cause = alone && cause_ != told_cause_ && clock_.now() - told_at_ >= kTellPause;
  if ((told_ == state && !other_cause) || (!told_ && alone && cause_.empty())) return;
  told_ = state;
  told_cause_ = cause_;
  told_at_ = clock_.now();
  switch (state) {
    case LendingState::kJoined:
      cause_.clear();
      return log_info(fmt::format("--lend: {} lends; KV memory is {} MiB, and up to {} MiB", url_,
                                  least_ >> 20, most_ >> 20));
    case LendingState::kAlone:
      return log_warning(fmt::format(
          "--lend: the coordinator {} does not lend ({}); serving with the minimum of {} MiB of KV "
          "memory, and asking again",
          url_, cause_.empty() ? "no answer came in time" : cause_, least_ >> 20));
    case LendingState::kFenced:
      return log_error(fmt::format(
          "--lend: another process has joined {} by this one's name; serving with the minimum of "
          "{} MiB of KV memory from now on: restart the server",
          url_, least_ >> 20));
  }
}

void LendSession::leave() {
  if (!shared_) return;
  if (lent_) lent_->leave();
  if (borrowed_) borrowed_->leave();
  link_->leave(agent_.leave(), url_);
}

}  // namespace sluice
