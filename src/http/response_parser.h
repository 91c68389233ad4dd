// ResponseParser: turns the bytes of a connection into one HTTP/1.1 response as they arrive. It is
// as strict as http/request_parser.h: it refuses bare line feeds, folded fields, a length beside
// chunks and codings other than chunked. It passes on the body in pieces and keeps none. It skips
// interim responses (1xx), and checks and drops trailers.
// Owner: the connection, for one response. Threads: the event loop's.
// Limits: head 64 KiB, 128 fields, a chunk's size line 4 KiB; the caller passes unconsumed bytes
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace sluice::http {

struct ResponseHead {
  int status = 0;
  std::string reason;
  std::vector<Header> headers;  // as sent, in order

  // The first header of that name, compared without case; nullptr when there is none.
  const std::string* header(std::string_view name) const;
};

class ResponseParser {
 public:
  static constexpr std::size_t kMaxHeadBytes = 64 << 10;
  static constexpr std::size_t kMaxFields = 128;
  // A chunk's size line; also all trailers together.
  static constexpr std::size_t kMaxChunkLine = 4096;

  enum class Event : std::uint8_t {
    kNeedMore,
    kHead,     // status and headers are complete; once
    kBody,     // a piece of the body
    kDone,     // the response is complete
    kRefused,  // see message(); no further call
  };
  struct Step {
    std::size_t consumed = 0;
    Event event = Event::kNeedMore;
    std::string_view body;  // kBody: within the bytes given
  };

  // Consumes as much of `bytes` as it can, up to the next event. REQUIRES: neither done nor
  // refused.
  Step put(std::string_view bytes);
  // Called when the connection has ended. True if that ends this response; else the response is
  // refused.
  bool end_of_input();

  const ResponseHead& head() const { return head_; }
  // After kDone: whether the connection may carry another request.
  bool keep_alive() const { return keep_alive_ && !until_close_; }
  const std::string& message() const { return message_; }

 private:
  enum class Part : std::uint8_t {
    kStatusLine,
    kFields,
    kBody,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailers,
    kUntilClose,
    kDone,
  };

  // Each returns false when it refuses.
  bool take_line(std::string_view line);
  bool status_line(std::string_view line);
  bool field(std::string_view line);
  bool known_field(std::string_view name, std::string_view value);
  bool length_field(std::string_view value);
  bool end_of_head();
  bool chunk_size(std::string_view line);
  bool line_fits(std::size_t bytes);
  bool refuse(std::string message);
  Step body_piece(std::string_view bytes, std::size_t consumed);

  Part part_ = Part::kStatusLine;
  ResponseHead head_;
  std::uint64_t content_length_ = 0;
  std::uint64_t remaining_ = 0;  // of the body, or of the chunk
  std::size_t head_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  bool head_reported_ = false;
  bool has_length_ = false;
  bool chunked_ = false;
  bool http_1_1_ = false;
  bool keep_alive_ = true;
  bool until_close_ = false;
  std::string message_;
};

}  // namespace sluice::http
