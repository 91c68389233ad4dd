#include "http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"
#include "http/message_grammar.h"

namespace sluice::http {
namespace {

// Bodies up to this length get their memory at once. A longer body gets it when this much has
// arrived, so that a declared length alone costs nothing. Growing by doubling instead would copy
// megabytes on the event loop, for all bodies that arrive side by side at about the same moment.
constexpr std::uint64_t kReserveAtOnce = 64 << 10;

bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte != 0x7f;
  });
}

}  // namespace

RequestParser::Step RequestParser::put(std::string_view bytes) {
  CHECK(status_ == 0);
  std::size_t consumed = 0;
  while (part_ != Part::kDone) {
    const std::string_view rest = bytes.substr(consumed);
    if (part_ == Part::kBody || part_ == Part::kChunkData) {
      if (!head_reported_) break;
      if (rest.empty()) return {consumed, Event::kNeedMore};
      consumed += take_body(rest);
      continue;
    }
    if (part_ == Part::kChunkSize && !head_reported_) break;
    if (part_ == Part::kRequestLine && !rest.empty() && !is_token_char(rest.front())) {
      refuse(400, "not an HTTP request; this port speaks plain HTTP/1.1");
      return {consumed, Event::kRefused};
    }
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) {
      const bool refused = line_too_long(rest.size());
      return {consumed, refused ? Event::kRefused : Event::kNeedMore};
    }
    if (line_too_long(end + 1)) return {consumed, Event::kRefused};
    if (end == 0 || rest[end - 1] != '\r') {
      refuse(400, "lines must end with carriage return and line feed");
      return {consumed, Event::kRefused};
    }
    consumed += end + 1;
    if (!take_line(rest.substr(0, end - 1))) return {consumed, Event::kRefused};
  }
  if (!std::exchange(head_reported_, true)) return {consumed, Event::kHead};
  return {consumed, Event::kDone};
}

bool RequestParser::take_line(std::string_view line) {
  switch (part_) {
    case Part::kRequestLine:
      header_bytes_ += line.size() + 2;
      part_ = Part::kFields;
      return request_line(line);
    case Part::kFields:
      header_bytes_ += line.size() + 2;
      return line.empty() ? end_of_head() : field(line);
    case Part::kChunkSize: return chunk_size(line);
    case Part::kChunkEnd:
      part_ = Part::kChunkSize;
      return line.empty() || refuse(400, "a chunk is longer than its size says");
    case Part::kTrailers:
      trailer_bytes_ += line.size() + 2;
      if (line.empty()) part_ = Part::kDone;
      return line.empty() || is_field(line) ||
             refuse(400, "a trailer is not 'name: value', or has control characters");
    default: CHECK(!"this part has no lines");
  }
  return false;
}

bool RequestParser::line_too_long(std::size_t waiting) {
  if (part_ == Part::kRequestLine || part_ == Part::kFields) {
    if (header_bytes_ + waiting <= limits_.header_bytes) return false;
    refuse(431,
           fmt::format("request line and headers are longer than {} bytes", limits_.header_bytes));
    return true;
  }
  const std::size_t before = part_ == Part::kTrailers ? trailer_bytes_ : 0;
  if (before + waiting <= kMaxChunkLine) return false;
  refuse(400, fmt::format("chunk size line or trailers are longer than {} bytes", kMaxChunkLine));
  return true;
}

bool RequestParser::request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return refuse(400, "the request line must be: method, target, HTTP/1.1");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) return refuse(400, "the request's method is not a word");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return refuse(400, "this server speaks HTTP/1.1 and HTTP/1.0 only");
  }
  http_1_1_ = version == "HTTP/1.1";
  request_.method = method;
  return target(line.substr(first + 1, last - first - 1));
}

bool RequestParser::target(std::string_view text) {
  if (text.empty() || !is_visible(text)) {
    return refuse(400, "the request's target is empty or has blanks or control characters");
  }
  const std::size_t scheme = text.find("://");
  if (text.front() != '/' && scheme != std::string_view::npos &&
      text.substr(0, scheme).find_first_of("/?") == std::string_view::npos) {
    // Absolute form, which clients send to proxies. Its host wins over the header Host
    // (RFC 9112, 3.2.2).
    const std::size_t path = text.find_first_of("/?", scheme + 3);
    request_.authority =
        text.substr(scheme + 3, path == std::string_view::npos ? path : path - scheme - 3);
    absolute_ = true;
    text.remove_prefix(std::min(path, text.size()));
  } else if (text.front() != '/' && text != "*" && request_.method != "CONNECT") {
    return refuse(400, "the request's target must begin with '/'");
  }
  const std::size_t question = text.find('?');
  request_.path = normal_path(text.substr(0, question));
  if (request_.path.empty()) request_.path = "/";
  if (question != std::string_view::npos) request_.query = text.substr(question + 1);
  return true;
}

bool RequestParser::field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    return refuse(400, "a header line is not 'name: value' (folded lines are not supported)");
  }
  const auto [name, value] = split_field(line);
  if (!is_field_text(value)) {
    return refuse(400, fmt::format("header '{}' has control characters", name));
  }
  if (request_.headers.size() >= kMaxFields) {
    return refuse(431, fmt::format("more than {} headers", kMaxFields));
  }
  request_.headers.push_back({std::string(name), std::string(value)});
  return known_field(name, value);
}

bool RequestParser::known_field(std::string_view name, std::string_view value) {
  if (ascii::equals_ignoring_case(name, "content-length")) return length_field(value);
  if (ascii::equals_ignoring_case(name, "transfer-encoding")) {
    if (chunked_) return refuse(400, "Transfer-Encoding is given twice");
    if (!ascii::equals_ignoring_case(value, "chunked")) {
      return refuse(501, "Transfer-Encoding: only 'chunked' is supported");
    }
    chunked_ = true;
  } else if (ascii::equals_ignoring_case(name, "connection")) {
    wants_close_ = wants_close_ || list_has(value, "close");
    wants_keep_alive_ = wants_keep_alive_ || list_has(value, "keep-alive");
  } else if (ascii::equals_ignoring_case(name, "host")) {
    if (++hosts_ > 1) return refuse(400, "Host is given twice");
    if (!absolute_) request_.authority = value;
  } else if (ascii::equals_ignoring_case(name, "content-encoding")) {
    if (!value.empty() && !ascii::equals_ignoring_case(value, "identity")) {
      return refuse(415, "Content-Encoding: compressed bodies are not supported; send it plain");
    }
  } else if (ascii::equals_ignoring_case(name, "expect")) {
    if (!ascii::equals_ignoring_case(value, "100-continue")) {
      return refuse(417, "Expect: only '100-continue' is supported");
    }
    expects_continue_ = true;
  }
  return true;
}

bool RequestParser::length_field(std::string_view value) {
  const auto length = parse_length(value);
  if (!length) return refuse(400, "Content-Length is not a number");
  if (has_length_ && *length != content_length_) {
    return refuse(400, "Content-Length is given twice, with different values");
  }
  has_length_ = true;
  content_length_ = *length;
  return true;
}

bool RequestParser::end_of_head() {
  if (http_1_1_ && hosts_ == 0) return refuse(400, "HTTP/1.1 requires the header Host");
  if (chunked_ && has_length_) {
    return refuse(400, "Content-Length and Transfer-Encoding exclude each other");
  }
  if (chunked_ && !http_1_1_) return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
  if (content_length_ > limits_.body_bytes) {
    return refuse(413, fmt::format("the body has {} bytes; at most {} are accepted",
                                   content_length_, limits_.body_bytes));
  }
  // Only HTTP/1.1 clients can read the interim answer.
  expects_continue_ = expects_continue_ && http_1_1_ && has_body();
  remaining_ = content_length_;
  part_ = chunked_ ? Part::kChunkSize : remaining_ > 0 ? Part::kBody : Part::kDone;
  return true;
}

bool RequestParser::chunk_size(std::string_view line) {
  const auto size = parse_chunk_size(line);
  if (!size) return refuse(400, "a chunk's size is not a hexadecimal number");
  // The sum cannot overflow: what is already read is within the limit.
  if (*size > limits_.body_bytes - request_.body.size()) {
    return refuse(413, fmt::format("the body is longer than {} bytes", limits_.body_bytes));
  }
  remaining_ = *size;
  part_ = *size > 0 ? Part::kChunkData : Part::kTrailers;
  return true;
}

std::size_t RequestParser::take_body(std::string_view bytes) {
  const std::size_t count =
      static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, bytes.size()));
  if (part_ == Part::kBody &&
      (content_length_ <= kReserveAtOnce || request_.body.size() >= kReserveAtOnce)) {
    request_.body.reserve(static_cast<std::size_t>(content_length_));  // nothing the second time
  }
  request_.body.append(bytes.substr(0, count));
  remaining_ -= count;
  if (remaining_ == 0) part_ = part_ == Part::kBody ? Part::kDone : Part::kChunkEnd;
  return count;
}

bool RequestParser::refuse(int status, std::string message) {
  status_ = status;
  message_ = std::move(message);
  return false;
}

}  // namespace sluice::http
