// RequestParser: turns the bytes of a connection into one Request as they arrive. It is strict
// where leniency lets two programs read different requests from the same bytes (RFC 9112, 11.2): it
// refuses bare line feeds, folded fields, a length beside chunks, codings other than chunked, and
// differing lengths. It checks trailers like header fields and drops them. We do not use
// Boost.Beast's parser: it accepts unknown codings, bounds neither the header's total nor chunk
// extensions, and a client can trip one of its assertions.
// Owner: the connection, for one request. Threads: the event loop's.
// Limits: it holds only bytes of the request; the caller passes unconsumed bytes again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/message.h"

namespace sluice::http {

class RequestParser {
 public:
  struct Limits {
    std::size_t header_bytes = 0;
    std::size_t body_bytes = 0;
  };
  static constexpr std::size_t kMaxFields = 128;
  // A chunk's size line; also all trailers together.
  static constexpr std::size_t kMaxChunkLine = 4096;

  enum class Event : std::uint8_t {
    kNeedMore,
    kHead,     // method to headers are complete; once for each request
    kDone,     // and so is the body
    kRefused,  // see status() and message(); no further call
  };
  struct Step {
    std::size_t consumed = 0;
    Event event = Event::kNeedMore;
  };

  explicit RequestParser(const Limits& limits) : limits_(limits) {}

  // Consumes as much of `bytes` as it can. After kHead, call it again with the rest, which may be
  // empty.
  Step put(std::string_view bytes);

  Request& request() { return request_; }
  const Request& request() const { return request_; }
  // From kHead on.
  bool has_body() const { return chunked_ || content_length_ > 0; }
  std::uint64_t content_length() const { return content_length_; }  // 0 when chunked
  bool http_1_1() const { return http_1_1_; }
  bool keep_alive() const { return http_1_1_ ? !wants_close_ : wants_keep_alive_ && !wants_close_; }
  bool expects_continue() const { return expects_continue_; }
  // When refused.
  int status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  enum class Part : std::uint8_t {
    kRequestLine,
    kFields,
    kBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailers,
    kDone,
  };

  // Each returns false when it refuses.
  bool take_line(std::string_view line);
  bool request_line(std::string_view line);
  bool target(std::string_view text);
  bool field(std::string_view line);
  bool known_field(std::string_view name, std::string_view value);
  bool length_field(std::string_view value);
  bool end_of_head();
  bool chunk_size(std::string_view line);
  // True when `waiting` bytes without a line's end are already too many.
  bool line_too_long(std::size_t waiting);
  std::size_t take_body(std::string_view bytes);
  bool refuse(int status, std::string message);

  Limits limits_;
  Request request_;
  Part part_ = Part::kRequestLine;
  std::uint64_t content_length_ = 0;
  std::uint64_t remaining_ = 0;  // of the body, or of the chunk
  std::size_t header_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  int status_ = 0;
  bool head_reported_ = false;
  bool absolute_ = false;  // the target has a host of its own
  bool has_length_ = false;
  bool chunked_ = false;
  bool http_1_1_ = false;
  bool wants_close_ = false;
  bool wants_keep_alive_ = false;
  bool expects_continue_ = false;
  std::uint8_t hosts_ = 0;
  std::string message_;
};

}  // namespace sluice::http
