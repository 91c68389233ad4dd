// StreamLoad: clients that stream completions over connections of their own, all on the calling
// thread. As cheap as a client can be, since it takes its time from the server's cores: it looks
// only for the end of each answer.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sluice::bench {

// One request to stream, with usage, and the output tokens it must give.
struct StreamRequest {
  std::string path;
  std::string body;
  std::int64_t tokens = 0;
};

class StreamLoad {
 public:
  using NextRequest = std::function<StreamRequest()>;

  static Result<StreamLoad> connect(std::uint16_t port, int streams, NextRequest next);
  ~StreamLoad();
  StreamLoad(StreamLoad&& other) noexcept;
  StreamLoad(const StreamLoad&) = delete;
  StreamLoad& operator=(const StreamLoad&) = delete;

  // Every stream sends a request, and again one when an answer is whole, until `duration` is over.
  Status run_for(Duration duration);
  // Every stream sends one request; returns when all answers are whole.
  Status run_once();
  // Output tokens of the answers that are whole.
  std::int64_t tokens() const { return tokens_; }

 private:
  struct Stream {
    int socket = -1;
    bool busy = false;
    bool ok = false;   // its answer has begun with status 200
    std::string tail;  // the last bytes of the answer
    std::int64_t expected_tokens = 0;
  };
  StreamLoad() = default;
  Status send_request(Stream& stream);
  Status receive(Stream& stream);
  Status take_end(Stream& stream, std::string_view text);
  // Waits for bytes up to the given time, and takes them.
  Status poll(int timeout_ms);

  NextRequest next_;
  int epoll_ = -1;
  std::vector<Stream> streams_;
  bool again_ = false;
  int busy_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace sluice::bench
