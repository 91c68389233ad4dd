#include "apps/lend_session.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/memory_size.h"
#include "http/fetch.h"
#include "lending/lending_json.h"

namespace sluice {
namespace {

constexpr Duration kAnswerTime = std::chrono::seconds(1);

// Unique over the machines of a coordinator: the host's name and the process's id.
std::string party_name() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name(host.data());
  std::erase_if(name, [](char c) {
    return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '.');
  });
  name.resize(std::min<std::size_t>(name.size(), 40));
  return fmt::format("{}-{}", name.empty() ? "serve" : name, getpid());
}

std::string random_prefix() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof(bits), 0) != static_cast<ssize_t>(sizeof(bits))) {
    bits = static_cast<std::uint64_t>(getpid());
  }
  return fmt::format("{:016x}", bits);
}

LendingAgentOptions agent_options(const LendSettings& settings) {
  return {.party = party_name(),
          .device = settings.device,
          .key_prefix = random_prefix(),
          .least = settings.least,
          .most = settings.most};
}

}  // namespace

Result<std::optional<LendSettings>> read_lend_settings(const LendArguments& arguments,
                                                       std::string& kv_cache_memory) {
  const std::size_t dash = kv_cache_memory.find('-');
  if (arguments.url.empty()) {
    if (!arguments.token_file.empty() || !arguments.device.empty()) {
      return invalid_argument("--lend-token-file and --lend-device need --lend URL");
    }
    if (dash == std::string::npos) return std::nullopt;
    return invalid_argument(
        "--kv-cache-memory MIN-MAX needs --lend URL, the coordinator that lends what is above MIN");
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
  LendSettings settings{
      url, arguments.url, std::move(token), arguments.device.empty() ? "cpu" : arguments.device, 0,
      0};
  ASSIGN_OR_RETURN(settings.least,
                   parse_memory_size("MIN of --kv-cache-memory", kv_cache_memory.substr(0, dash)));
  kv_cache_memory.erase(0, dash + 1);
  ASSIGN_OR_RETURN(settings.most, parse_memory_size("MAX of --kv-cache-memory", kv_cache_memory));
  if (settings.least <= settings.most) return std::optional(std::move(settings));
  return invalid_argument("--kv-cache-memory MIN-MAX: MIN is above MAX");
}

Result<std::unique_ptr<LendSession>> LendSession::open(const LendSettings& settings,
                                                       http::EventLoop& loop, const Clock& clock,
                                                       ThreadedEngineLoop& engine,
                                                       ServerMetrics& metrics) {
  http::HttpClientOptions options;
  options.url = settings.url;
  options.headers = {{"Authorization", settings.token.header()}};
  options.connect_timeout = kAnswerTime;
  options.silence_timeout = kAnswerTime;
  auto client = http::HttpClient::open(loop, options);
  if (!client) return with_context("--lend", std::move(client).error());
  auto session = std::unique_ptr<LendSession>(
      new LendSession(settings, std::move(options), loop, clock, engine, metrics));
  session->client_ = *std::move(client);
  return session;
}

LendSession::LendSession(const LendSettings& settings, http::HttpClientOptions client,
                         http::EventLoop& loop, const Clock& clock, ThreadedEngineLoop& engine,
                         ServerMetrics& metrics)
    : options_(std::move(client)),
      url_(settings.url_text),
      least_(settings.least),
      most_(settings.most),
      loop_(loop),
      clock_(clock),
      engine_(engine),
      metrics_(metrics),
      agent_(agent_options(settings)) {}

void LendSession::start(std::int64_t block_bytes, std::int32_t max_num_seqs) {
  block_bytes_ = block_bytes;
  max_num_seqs_ = max_num_seqs;
  tick();
}

void LendSession::tick() {
  look();
  send();
  loop_.after(kTick, [this] { tick(); });
}

void LendSession::look() {
  const EngineGauges gauges = engine_.gauges();
  // Until the engine shows the limit that it was told, it may use all of the one before.
  const bool obeys = set_ == 0 || gauges.kv_limit_blocks == set_ / block_bytes_;
  const std::int32_t blocks =
      obeys ? gauges.kv_blocks_backed : std::max(gauges.kv_blocks_backed, gauges.kv_limit_blocks);
  LendingLoad load;
  load.limit = agent_.limit();
  load.used = gauges.kv_blocks_used * block_bytes_;
  load.backed = blocks * block_bytes_;
  load.waiting = gauges.waiting;
  load.slots_full = gauges.running >= max_num_seqs_;
  agent_.update(clock_.now(), load);
  if (agent_.limit() != set_) {
    set_ = agent_.limit();
    engine_.limit_kv(set_);
  }
  metrics_.lending({.limit_bytes = agent_.limit(),
                    .borrowed_bytes = agent_.borrowed(),
                    .joined = agent_.state() == LendingState::kJoined,
                    .recalls = agent_.recalls()});
  tell();
}

void LendSession::send() {
  if (engine_.state() != EngineState::kReady) return;
  const auto message = agent_.next(clock_.now());
  if (!message) return;
  body_.clear();
  client_->start({.method = "POST",
                  .path = "/v1/" + std::string(lend_verb_name(message->verb)),
                  .body = lend_request_json(*message)},
                 *this);
}

void LendSession::on_head(const http::ResponseHead&) {}

void LendSession::on_body(std::string_view piece) {
  if (body_.size() + piece.size() <= kMaxLendingBody) body_ += piece;
}

void LendSession::on_end(Status status) {
  if (!status) return fail(status.error().message);
  const auto answer = parse_lend_answer(body_);
  if (!answer) return fail(answer.error().message);
  if (answer->fault == LendFault::kNotLeading) return fail(answer->message);
  agent_.answer(*answer);
  if (answer->fault != LendFault::kNone) cause_ = answer->message;
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
  const LendingState state = agent_.state();
  if (told_ == state || (!told_ && state == LendingState::kAlone && cause_.empty())) return;
  told_ = state;
  switch (state) {
    case LendingState::kJoined:
      return log_info(fmt::format("--lend: {} lends; KV memory is {} MiB, and up to {} MiB", url_,
                                  least_ >> 20, most_ >> 20));
    case LendingState::kAlone:
      return log_warning(fmt::format(
          "--lend: the coordinator {} does not lend ({}); serving with the minimum of {} MiB of KV "
          "memory, and asking again",
          url_, cause_, least_ >> 20));
    case LendingState::kFenced:
      return log_error(fmt::format(
          "--lend: another process has joined {} by this one's name; serving with the minimum of "
          "{} MiB of KV memory from now on: restart the server",
          url_, least_ >> 20));
  }
}

void LendSession::leave() {
  client_.reset();
  const auto message = agent_.leave();
  if (!message) return;
  const auto answer = http::fetch(
      options_, {.method = "POST", .path = "/v1/leave", .body = lend_request_json(*message)});
  if (!answer) log_warning(fmt::format("--lend: {}: {}", url_, answer.error().message));
}

}  // namespace sluice
