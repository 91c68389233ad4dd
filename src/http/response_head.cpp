#include "http/response_head.h"

#include <fmt/format.h>

#include <ctime>

#include "base/text.h"

namespace sluice::http {
namespace {

void append_clean(std::string_view text, std::string& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(byte < 0x20 || byte == 0x7f ? ' ' : c);
  }
}

void append_header(std::string_view name, std::string_view value, std::string& out) {
  append_clean(name, out);
  out += ": ";
  append_clean(value, out);
  out += "\r\n";
}

// RFC 9110 wants it in English and in GMT: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string date_text() {
  static constexpr std::string_view kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  // tidy: allow(wall-clock) the header Date tells the time of day; nothing is decided by it
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

void ResponseHeads::append(const Response& response, Framing framing, std::size_t content_length,
                           bool keep_alive, bool http_1_1, TimePoint now, std::string& out) {
  append_format(out, "HTTP/1.1 {} {}\r\nServer: sluice\r\nDate: {}\r\n", response.status,
                reason_phrase(response.status), date(now));
  const bool bodiless = !has_body(response.status);
  if (!response.content_type.empty() && !bodiless) {
    append_header("Content-Type", response.content_type, out);
  }
  if (framing == Framing::kChunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (framing == Framing::kLength && !bodiless) {
    append_format(out, "Content-Length: {}\r\n", content_length);
  }
  if (!keep_alive) {
    out += "Connection: close\r\n";
  } else if (!http_1_1) {
    out += "Connection: keep-alive\r\n";
  }
  for (const Header& header : response.headers) append_header(header.name, header.value, out);
  out += "\r\n";
}

std::string_view ResponseHeads::date(TimePoint now) {
  if (!date_at_ || now - *date_at_ >= std::chrono::seconds(1)) {
    date_ = date_text();
    date_at_ = now;
  }
  return date_;
}

void append_chunk(std::string_view bytes, std::string& out) {
  if (bytes.empty()) return;
  append_format(out, "{:x}\r\n", bytes.size());
  out += bytes;
  out += "\r\n";
}

}  // namespace sluice::http
