// TestClient: a raw TCP client that sends any bytes and reads answers with a timeout, so that a
// silent server fails a test instead of hanging it.
// Threads: the one that made it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::http {

struct TestAnswer {
  int status = 0;
  std::string head;  // status line and headers
  std::string body;  // chunked coding removed
  std::size_t chunks = 0;

  bool has_header(std::string_view line) const;  // "Name: value", without case
};

class TestClient {
 public:
  // `receive_buffer`: bytes the system takes for a client that does not read; 0: its default.
  explicit TestClient(std::uint16_t port, int receive_buffer = 0);
  // `address`: numbers, of IPv4 or IPv6.
  TestClient(const std::string& address, std::uint16_t port, int receive_buffer = 0);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  TestClient(TestClient&& other) noexcept;

  bool connected() const { return fd_ >= 0; }
  // False when the server has closed.
  bool send(std::string_view bytes);
  // The next answer; nothing when the connection ends or time runs out before it is whole.
  // `head_only`: the answer to HEAD.
  std::optional<TestAnswer> answer(bool head_only = false);
  // Whether something has come that is not yet read.
  bool readable_now() const;
  // Reads until `text` has come (it stays to be read); false at the end or when time runs out.
  bool wait_for(std::string_view text);
  // Reads until the server closes: what came; nothing when it does not close in time.
  std::optional<std::string> rest();
  // Whether the server has closed, or reset, the connection by now or soon.
  bool closed() { return rest().has_value(); }
  void shutdown_send();
  // Ends the connection with a reset.
  void reset();

 private:
  enum class Read { kBytes, kEnd, kTimeout };
  Read read_some();
  bool take_chunks(std::string_view text, TestAnswer& answer, std::size_t& used) const;

  int fd_ = -1;
  std::string input_;
};

}  // namespace sluice::http
