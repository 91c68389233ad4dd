#include "bench/stream_load.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "bench/server_process.h"

namespace sluice::bench {
namespace {

constexpr int kPatienceMs = 120'000;  // without a byte from any stream
constexpr std::size_t kTail = 1024;   // holds the chunks with the usage and the end
constexpr std::string_view kOk = "HTTP/1.1 200 ";
constexpr std::string_view kEnd = "data: [DONE]\n\n\r\n0\r\n\r\n";

// While one lives, the thread takes its turn only when others let it. Otherwise each token that the
// server sends on this machine would wake the client in the server's place, which no client
// elsewhere can do.
class Patience {
 public:
  Patience() { set(SCHED_BATCH | SCHED_RESET_ON_FORK); }
  ~Patience() { set(SCHED_OTHER); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  static void set(int policy) {
    const sched_param none{};
    CHECK(sched_setscheduler(0, policy, &none) == 0);
  }
};

std::string post(const StreamRequest& request) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      request.path, request.body.size(), request.body);
}

}  // namespace

Result<StreamLoad> StreamLoad::connect(std::uint16_t port, int streams, NextRequest next) {
  StreamLoad load;
  load.next_ = std::move(next);
  load.epoll_ = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < streams; ++i) {
    ASSIGN_OR_RETURN(const int socket, connect_to(port));
    load.streams_.emplace_back();
    load.streams_.back().socket = socket;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(i);
    epoll_ctl(load.epoll_, EPOLL_CTL_ADD, socket, &event);
  }
  return load;
}

StreamLoad::StreamLoad(StreamLoad&& other) noexcept
    : next_(std::move(other.next_)),
      epoll_(std::exchange(other.epoll_, -1)),
      streams_(std::exchange(other.streams_, {})),
      again_(other.again_),
      busy_(other.busy_),
      tokens_(other.tokens_) {}

StreamLoad::~StreamLoad() {
  for (const Stream& stream : streams_) close(stream.socket);
  if (epoll_ >= 0) close(epoll_);
}

Status StreamLoad::run_for(Duration duration) {
  const Patience patience;
  const auto end = std::chrono::steady_clock::now() + duration;
  again_ = true;
  for (Stream& stream : streams_) {
    if (!stream.busy) RETURN_IF_ERROR(send_request(stream));
  }
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return {};
    RETURN_IF_ERROR(poll(static_cast<int>(left.count())));
  }
}

Status StreamLoad::run_once() {
  const Patience patience;
  again_ = false;
  for (Stream& stream : streams_) {
    if (!stream.busy) RETURN_IF_ERROR(send_request(stream));
  }
  while (busy_ > 0) RETURN_IF_ERROR(poll(kPatienceMs));
  return {};
}

Status StreamLoad::send_request(Stream& stream) {
  const StreamRequest request = next_();
  stream.busy = true;
  stream.ok = false;
  stream.tail.clear();
  stream.expected_tokens = request.tokens;
  ++busy_;
  return send_all(stream.socket, post(request));
}

Status StreamLoad::poll(int timeout_ms) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
  if (count == 0 && timeout_ms == kPatienceMs) return unavailable("the server has fallen silent");
  for (int i = 0; i < count; ++i) {
    RETURN_IF_ERROR(receive(streams_[events[static_cast<std::size_t>(i)].data.u32]));
  }
  return {};
}

Status StreamLoad::receive(Stream& stream) {
  std::array<char, 16384> buffer;
  const ssize_t count = recv(stream.socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count <= 0) return unavailable("the server has closed a stream");
  const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
  if (!stream.ok) {
    if (!text.starts_with(kOk)) return unavailable(fmt::format("the server answers: {}", text));
    stream.ok = true;
  }
  if (stream.tail.size() > kTail) stream.tail.erase(0, stream.tail.size() - kTail / 2);
  stream.tail.append(text.substr(text.size() - std::min(text.size(), kTail)));
  return stream.tail.ends_with(kEnd) ? take_end(stream, stream.tail) : Status();
}

// The usage proves that no token was lost.
Status StreamLoad::take_end(Stream& stream, std::string_view text) {
  const std::string usage = fmt::format("\"completion_tokens\":{}", stream.expected_tokens);
  const std::size_t at = text.rfind(usage);
  if (at == std::string_view::npos) {
    return internal_error(fmt::format("an answer lacks {}: {}", usage, text));
  }
  tokens_ += stream.expected_tokens;
  stream.busy = false;
  --busy_;
  return again_ ? send_request(stream) : Status();
}

}  // namespace sluice::bench
