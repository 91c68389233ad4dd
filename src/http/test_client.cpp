#include "http/test_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <utility>

#include "base/ascii.h"

namespace sluice::http {
namespace {

constexpr int kPatienceMs = 5000;

std::string lower_text(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii::lower(c);
  return out;
}

}  // namespace

bool TestAnswer::has_header(std::string_view line) const {
  return lower_text(head).find("\r\n" + lower_text(line) + "\r\n") != std::string::npos;
}

TestClient::TestClient(std::uint16_t port, int receive_buffer)
    : TestClient("127.0.0.1", port, receive_buffer) {}

TestClient::TestClient(const std::string& address, std::uint16_t port, int receive_buffer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return;
  fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ >= 0 && receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  if (fd_ >= 0 && connect(fd_, found->ai_addr, found->ai_addrlen) != 0) {
    ::close(std::exchange(fd_, -1));
  }
  freeaddrinfo(found);
}

TestClient::TestClient(TestClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), input_(std::move(other.input_)) {}

TestClient::~TestClient() {
  if (fd_ >= 0) ::close(fd_);
}

bool TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

TestClient::Read TestClient::read_some() {
  pollfd waiting{fd_, POLLIN, 0};
  if (poll(&waiting, 1, kPatienceMs) <= 0) return Read::kTimeout;
  char buffer[16384];
  const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
  if (count <= 0) return Read::kEnd;
  input_.append(buffer, static_cast<std::size_t>(count));
  return Read::kBytes;
}

bool TestClient::readable_now() const {
  pollfd waiting{fd_, POLLIN, 0};
  return poll(&waiting, 1, 0) > 0;
}

bool TestClient::wait_for(std::string_view text) {
  while (input_.find(text) == std::string::npos) {
    if (read_some() != Read::kBytes) return false;
  }
  return true;
}

std::optional<std::string> TestClient::rest() {
  for (;;) {
    const Read read = read_some();
    if (read == Read::kTimeout) return std::nullopt;
    if (read == Read::kEnd) return std::exchange(input_, {});
  }
}

// True when all chunks are there.
bool TestClient::take_chunks(std::string_view text, TestAnswer& answer, std::size_t& used) const {
  used = 0;
  answer.body.clear();
  answer.chunks = 0;
  for (;;) {
    const std::size_t end = text.find("\r\n", used);
    if (end == std::string_view::npos) return false;
    std::size_t size = 0;
    std::from_chars(text.data() + used, text.data() + end, size, 16);
    if (text.size() < end + 2 + size + 2) return false;
    answer.body += text.substr(end + 2, size);
    used = end + 2 + size + 2;
    if (size == 0) return true;
    ++answer.chunks;
  }
}

std::optional<TestAnswer> TestClient::answer(bool head_only) {
  if (!wait_for("\r\n\r\n")) return std::nullopt;
  TestAnswer answer;
  const std::size_t head_end = input_.find("\r\n\r\n") + 4;
  answer.head = input_.substr(0, head_end);
  const char* status = answer.head.data() + 9;
  std::from_chars(status, status + 3, answer.status);
  std::size_t used = 0;
  const std::string lowered = lower_text(answer.head);
  const std::size_t length_at = lowered.find("\r\ncontent-length: ");
  if (head_only || answer.status == 100 || answer.status == 204) {
    used = 0;
  } else if (answer.has_header("Transfer-Encoding: chunked")) {
    while (!take_chunks(std::string_view(input_).substr(head_end), answer, used)) {
      if (read_some() != Read::kBytes) return std::nullopt;
    }
  } else if (length_at != std::string::npos) {
    const char* digits = lowered.data() + length_at + 18;
    std::from_chars(digits, lowered.data() + lowered.size(), used);
    while (input_.size() < head_end + used) {
      if (read_some() != Read::kBytes) return std::nullopt;
    }
    answer.body = input_.substr(head_end, used);
  } else {
    answer.body = rest().value_or("").substr(head_end);
    return answer;
  }
  input_.erase(0, head_end + used);
  return answer;
}

void TestClient::shutdown_send() { shutdown(fd_, SHUT_WR); }

void TestClient::reset() {
  const linger hard{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  ::close(std::exchange(fd_, -1));
}

}  // namespace sluice::http
