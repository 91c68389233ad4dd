// The bytes before and around a response's body: status line, headers, chunk framing.
// Threads: ResponseHeads belongs to the event loop's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "http/message.h"

namespace sluice::http {

// How the client learns where a response ends.
enum class Framing : std::uint8_t {
  kLength,      // Content-Length
  kChunked,     // HTTP/1.1 streams
  kUntilClose,  // HTTP/1.0 streams
};

// 204 and 304 have none by definition (RFC 9110, 15.3.5 and 15.4.5).
constexpr bool has_body(int status) { return status != 204 && status != 304; }

class ResponseHeads {
 public:
  // Appends the head of `response`. Line ends within headers become blanks, so that no value can
  // begin a header of its own. `content_length` counts for Framing::kLength.
  void append(const Response& response, Framing framing, std::size_t content_length,
              bool keep_alive, bool http_1_1, TimePoint now, std::string& out);

 private:
  std::string_view date(TimePoint now);

  std::string date_;  // the text for date_at_, valid for a second
  std::optional<TimePoint> date_at_;
};

// Appends one chunk; nothing when `bytes` is empty, since an empty chunk ends a response.
void append_chunk(std::string_view bytes, std::string& out);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace sluice::http
