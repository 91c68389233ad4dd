#include "http/response_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"
#include "http/message_grammar.h"
#include "http/response_head.h"

namespace sluice::http {
namespace {}  // namespace

const std::string* ResponseHead::header(std::string_view name) const {
  for (const Header& header : headers) {
    if (ascii::equals_ignoring_case(header.name, name)) return &header.value;
  }
  return nullptr;
}

ResponseParser::Step ResponseParser::put(std::string_view bytes) {
  CHECK(message_.empty());
  std::size_t consumed = 0;
  for (;;) {
    const bool in_head = part_ == Part::kStatusLine || part_ == Part::kFields;
    if (!in_head && !std::exchange(head_reported_, true)) return {consumed, Event::kHead, {}};
    if (part_ == Part::kDone) return {consumed, Event::kDone, {}};
    const std::string_view rest = bytes.substr(consumed);
    if (part_ == Part::kBody || part_ == Part::kChunkData || part_ == Part::kUntilClose) {
      if (rest.empty()) return {consumed, Event::kNeedMore, {}};
      return body_piece(rest, consumed);
    }
    const std::size_t end = rest.find('\n');
    const std::size_t line_bytes = end == std::string_view::npos ? rest.size() : end + 1;
    if (!line_fits(line_bytes)) return {consumed, Event::kRefused, {}};
    if (end == std::string_view::npos) return {consumed, Event::kNeedMore, {}};
    if (end == 0 || rest[end - 1] != '\r') {
      refuse("lines must end with carriage return and line feed");
      return {consumed, Event::kRefused, {}};
    }
    consumed += line_bytes;
    if (!take_line(rest.substr(0, end - 1))) return {consumed, Event::kRefused, {}};
  }
}

ResponseParser::Step ResponseParser::body_piece(std::string_view bytes, std::size_t consumed) {
  std::size_t count = bytes.size();
  if (part_ != Part::kUntilClose) {
    count = static_cast<std::size_t>(std::min<std::uint64_t>(remaining_, count));
    remaining_ -= count;
    if (remaining_ == 0) part_ = part_ == Part::kBody ? Part::kDone : Part::kChunkEnd;
  }
  return {consumed + count, Event::kBody, bytes.substr(0, count)};
}

bool ResponseParser::end_of_input() {
  if (part_ == Part::kDone) return true;
  if (part_ == Part::kUntilClose && head_reported_) {
    part_ = Part::kDone;
    return true;
  }
  if (part_ == Part::kStatusLine && head_bytes_ == 0) {
    return refuse("the server closed the connection without an answer");
  }
  return refuse("the server closed the connection before the end of its answer");
}

bool ResponseParser::take_line(std::string_view line) {
  switch (part_) {
    case Part::kStatusLine:
      head_bytes_ += line.size() + 2;
      part_ = Part::kFields;
      return status_line(line);
    case Part::kFields:
      head_bytes_ += line.size() + 2;
      return line.empty() ? end_of_head() : field(line);
    case Part::kChunkSize: return chunk_size(line);
    case Part::kChunkEnd:
      part_ = Part::kChunkSize;
      return line.empty() || refuse("a chunk is longer than its size says");
    case Part::kTrailers:
      trailer_bytes_ += line.size() + 2;
      if (line.empty()) part_ = Part::kDone;
      return line.empty() || is_field(line) ||
             refuse("a trailer is not 'name: value', or has control characters");
    default: CHECK(!"this part has no lines");
  }
  return false;
}

bool ResponseParser::line_fits(std::size_t bytes) {
  if (part_ == Part::kStatusLine || part_ == Part::kFields) {
    return head_bytes_ + bytes <= kMaxHeadBytes ||
           refuse(fmt::format("status line and headers are longer than {} bytes", kMaxHeadBytes));
  }
  const std::size_t before = part_ == Part::kTrailers ? trailer_bytes_ : 0;
  return before + bytes <= kMaxChunkLine ||
         refuse(fmt::format("chunk size line or trailers are longer than {} bytes", kMaxChunkLine));
}

bool ResponseParser::status_line(std::string_view line) {
  constexpr std::string_view kExpected =
      "not an HTTP/1.1 answer; is there a server of another protocol on this port?";
  http_1_1_ = line.starts_with("HTTP/1.1 ");
  if (!http_1_1_ && !line.starts_with("HTTP/1.0 ")) return refuse(std::string(kExpected));
  const std::string_view code = line.substr(9, 3);
  const bool digits = code.size() == 3 && std::all_of(code.begin(), code.end(), ascii::is_digit);
  if (!digits || code.front() == '0' || (line.size() > 12 && line[12] != ' ') ||
      !is_field_text(line)) {
    return refuse("the status line is not 'HTTP/1.1', a status of three digits and a reason");
  }
  std::from_chars(code.data(), code.data() + 3, head_.status);
  head_.reason = line.substr(std::min<std::size_t>(line.size(), 13));
  keep_alive_ = http_1_1_;
  return true;
}

bool ResponseParser::field(std::string_view line) {
  if (!is_field(line)) {
    return refuse("a header line is not 'name: value', or has control characters");
  }
  if (head_.headers.size() >= kMaxFields) {
    return refuse(fmt::format("more than {} headers", kMaxFields));
  }
  const auto [name, value] = split_field(line);
  head_.headers.push_back({std::string(name), std::string(value)});
  return known_field(name, value);
}

bool ResponseParser::known_field(std::string_view name, std::string_view value) {
  if (ascii::equals_ignoring_case(name, "content-length")) return length_field(value);
  if (ascii::equals_ignoring_case(name, "transfer-encoding")) {
    if (chunked_) return refuse("Transfer-Encoding is given twice");
    if (!ascii::equals_ignoring_case(value, "chunked")) {
      return refuse(fmt::format("Transfer-Encoding '{}': only 'chunked' is supported", value));
    }
    chunked_ = true;
  } else if (ascii::equals_ignoring_case(name, "content-encoding")) {
    if (!value.empty() && !ascii::equals_ignoring_case(value, "identity")) {
      return refuse(fmt::format("Content-Encoding '{}', although none was requested", value));
    }
  } else if (ascii::equals_ignoring_case(name, "connection")) {
    keep_alive_ = keep_alive_ && !list_has(value, "close");
  }
  return true;
}

bool ResponseParser::length_field(std::string_view value) {
  const auto length = parse_length(value);
  if (!length) return refuse("Content-Length is not a number");
  if (has_length_ && *length != content_length_) {
    return refuse("Content-Length is given twice, with different values");
  }
  has_length_ = true;
  content_length_ = *length;
  return true;
}

bool ResponseParser::end_of_head() {
  if (head_.status < 200) {
    if (head_.status == 101)
      return refuse("101: the server changes to a protocol that was not requested");
    // An interim answer; the real one follows. The sum of the heads stays bounded.
    const std::size_t bytes = head_bytes_;
    *this = {};
    head_bytes_ = bytes;
    return true;
  }
  if (chunked_ && has_length_) {
    return refuse("Content-Length and Transfer-Encoding exclude each other");
  }
  if (chunked_ && !http_1_1_) return refuse("HTTP/1.0 has no Transfer-Encoding");
  const bool bodiless = !has_body(head_.status);
  until_close_ = !bodiless && !chunked_ && !has_length_;
  remaining_ = content_length_;
  part_ = bodiless         ? Part::kDone
          : chunked_       ? Part::kChunkSize
          : until_close_   ? Part::kUntilClose
          : remaining_ > 0 ? Part::kBody
                           : Part::kDone;
  return true;
}

bool ResponseParser::chunk_size(std::string_view line) {
  const auto size = parse_chunk_size(line);
  if (!size) return refuse("a chunk's size is not a hexadecimal number");
  remaining_ = *size;
  part_ = *size > 0 ? Part::kChunkData : Part::kTrailers;
  return true;
}

bool ResponseParser::refuse(std::string message) {
  message_ = std::move(message);
  return false;
}

}  // namespace sluice::http
