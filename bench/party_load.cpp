#include "bench/party_load.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bench/server_process.h"
#include "lending/lending_json.h"

namespace sluice::bench {
namespace {

// The body of a whole answer; nothing yet if it is not whole.
std::optional<std::string_view> body_of(std::string_view answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  if (head == std::string_view::npos) return std::nullopt;
  constexpr std::string_view kLength = "Content-Length: ";
  const std::size_t at = answer.find(kLength);
  if (at == std::string_view::npos || at > head) return std::nullopt;
  const std::size_t length = std::strtoul(answer.data() + at + kLength.size(), nullptr, 10);
  if (answer.size() < head + 4 + length) return std::nullopt;
  return answer.substr(head + 4, length);
}

}  // namespace

PartyLoad::PartyLoad(PartyLoad&& other) noexcept
    : options_(std::move(other.options_)),
      random_(other.random_),
      epoll_(std::exchange(other.epoll_, -1)),
      parties_(std::move(other.parties_)),
      times_(std::move(other.times_)),
      errors_(other.errors_) {
  other.parties_.clear();
}

PartyLoad::~PartyLoad() {
  for (const Party& party : parties_) close(party.socket);
  if (epoll_ >= 0) close(epoll_);
}

Result<PartyLoad> PartyLoad::connect(PartyLoadOptions options) {
  PartyLoad load(std::move(options));
  load.epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (load.epoll_ < 0) return unavailable("no epoll");
  for (int i = 0; i < load.options_.parties; ++i) RETURN_IF_ERROR(load.open(i));
  return load;
}

Status PartyLoad::open(int index) {
  const auto& devices = options_.devices;
  const std::string device = devices[static_cast<std::size_t>(index) % devices.size()];
  Party& party = parties_.emplace_back(
      Party{.agent = LendingAgent({.party = fmt::format("host-{:05}", 10'000 + index),
                                   .device = device,
                                   .key_prefix = fmt::format("{:016x}", random_()),
                                   .least = kLeast,
                                   .most = kMost}),
            .device = device});
  ASSIGN_OR_RETURN(party.socket, connect_to(options_.port));
  party.used = party.backed = kLeast / 4;
  std::exponential_distribution<double> calm(1 / options_.calm_s);
  party.next_change = clock_.now() + from_seconds(calm(random_));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = static_cast<std::uint32_t>(index);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, party.socket, &event) == 0) return {};
  return unavailable(fmt::format("epoll_ctl: {}", std::strerror(errno)));
}

// A tick of the party's engine: a burst needs 64 to 512 MiB; an engine gives memory back a tick
// after its limit fell.
void PartyLoad::live(TimePoint now, Party& party) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  if (now >= party.next_change) {
    const bool begins = party.need == 0;
    party.need = begins ? (64 + static_cast<std::int64_t>(random_() % 448)) * kMiB : 0;
    std::exponential_distribution<double> length(1 / (begins ? options_.burst_s : options_.calm_s));
    party.next_change = now + from_seconds(length(random_));
  }
  const std::int64_t limit = party.agent.limit();
  party.backed = std::min(party.backed, limit);
  party.used = std::min(std::max(party.need, kLeast / 4), limit);
  party.backed = std::max(party.backed, party.used);
}

void PartyLoad::look(TimePoint now, Party& party) {
  const std::int64_t limit = party.agent.limit();
  party.agent.update(now, {.limit = limit,
                           .used = std::min(party.used, limit),
                           .backed = party.backed,
                           .waiting = party.need > limit ? 4 : 0});
}

Status PartyLoad::send(TimePoint now, Party& party) {
  if (party.waits) return {};
  const auto message = party.agent.next(now);
  if (!message) return {};
  const std::string body = lend_request_json(*message);
  const std::string bytes = fmt::format(
      "POST /v1/{} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      lend_verb_name(message->verb), options_.token, body.size(), body);
  party.verb = message->verb;
  party.waits = true;
  party.sent = clock_.now();
  return send_all(party.socket, bytes);
}

Status PartyLoad::receive(Party& party) {
  std::array<char, 16384> buffer;
  const ssize_t count = recv(party.socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return {};
  if (count <= 0) return unavailable("the coordinator has closed a connection");
  const TimePoint now = clock_.now();
  party.answer.append(buffer.data(), static_cast<std::size_t>(count));
  const auto body = body_of(party.answer);
  if (!body) return {};
  ASSIGN_OR_RETURN(const LendAnswer answer, parse_lend_answer(*body));
  party.answer.clear();
  party.waits = false;
  times_[party.verb].push_back(to_milliseconds(now - party.sent));
  if (answer.fault == LendFault::kNotLeading) {
    ++errors_;
    party.agent.failed(now);
    return {};
  }
  if (answer.fault != LendFault::kNone) ++errors_;
  party.agent.answer(answer);
  look(now, party);
  return send(now, party);
}

Status PartyLoad::run_for(Duration duration) {
  const TimePoint begin = clock_.now();
  const auto count = static_cast<std::int64_t>(parties_.size());
  std::int64_t ticked = 0;
  for (TimePoint now = begin; now - begin < duration; now = clock_.now()) {
    // Each party once a tick, spread evenly over it. Ticks that are late are left out.
    std::int64_t due = (now - begin) * count / kTick;
    ticked = std::max(ticked, due - count);
    for (; ticked < due; ++ticked) {
      Party& party = parties_[next_];
      next_ = (next_ + 1) % parties_.size();
      live(now, party);
      look(now, party);
      RETURN_IF_ERROR(send(now, party));
    }
    std::array<epoll_event, 64> events;
    const int ready = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 1);
    for (int i = 0; i < ready; ++i) {
      RETURN_IF_ERROR(receive(parties_[events[static_cast<std::size_t>(i)].data.u32]));
    }
  }
  return {};
}

int PartyLoad::joined() const {
  return static_cast<int>(std::ranges::count_if(
      parties_, [](const Party& one) { return one.agent.state() == LendingState::kJoined; }));
}

std::int64_t PartyLoad::borrowed(const std::string& device) const {
  std::int64_t sum = 0;
  for (const Party& party : parties_) {
    if (party.device == device) {
      sum += std::max(party.agent.limit(), party.backed) - kLeast;
    }
  }
  return sum;
}

}  // namespace sluice::bench
