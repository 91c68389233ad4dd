// AccessLog: one line of JSON per request, to stderr or a file. A separate thread writes it; the
// event loop only formats the line and puts it into a bounded queue. If the disk is slower than
// the requests, the oldest lines are lost, and a warning counts them.
// It holds ids, counts and times only, never prompts or answers.
// Owner: the command. Threads: write() from the event loop; the rest from the owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace sluice {

// The status and close reason of a client that has left. Proxies use 499 when there was no answer.
inline constexpr int kStatusClientGone = 499;
inline constexpr std::string_view kPeerGone = "peer_gone";

struct AccessRecord {
  std::string request_id;
  std::string peer;
  std::string method;
  std::string path;
  std::string model;   // empty: none was named
  std::string client;  // name of the API key, else `user`
  int status = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::optional<Duration> ttft;  // from the request's last byte to its first token
  Duration total{0};             // from the request's last byte to the end of the answer
  std::string finish_reason;     // of the first choice; empty: nothing was generated
  std::int64_t bytes = 0;        // of the body, given to the connection
  std::string close_reason;      // why the answer was not fully delivered; empty: it was
};

// One line, without its end. `unix_ms`: milliseconds since 1970.
std::string access_line(const AccessRecord& record, std::int64_t unix_ms);

class AccessLog {
 public:
  // `target`: "stderr", "off" or a file, which is appended to. Errors name the file.
  static Result<std::unique_ptr<AccessLog>> open(const std::string& target);
  ~AccessLog();  // writes the waiting lines
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void write(const AccessRecord& record);
  std::int64_t lost_lines() const;

 private:
  struct Impl;
  explicit AccessLog(std::unique_ptr<Impl> impl);
  void report_losses();
  std::unique_ptr<Impl> impl_;  // nullptr: off
};

}  // namespace sluice
