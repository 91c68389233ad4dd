// Parses a connection's bytes as requests, cut into pieces at any places. However they are cut, the
// parser gives the same requests and the same refusal. They equal those of a slow parser, written
// from RFC 9112, which sees all bytes at once. The memory in use stays within the limits.
// Input: which limits, how many cuts (up to 15), the length of each piece, then the connection.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "http/request_parser.h"

namespace {

using sluice::http::Header;
using sluice::http::Request;
using sluice::http::RequestParser;

constexpr RequestParser::Limits kLimits[] = {{.header_bytes = 16 << 10, .body_bytes = 8 << 20},
                                             {.header_bytes = 400, .body_bytes = 64},
                                             {.header_bytes = 48, .body_bytes = 5},
                                             {.header_bytes = 16 << 10, .body_bytes = 0}};
// RequestParser reserves this much for a body with a Content-Length.
constexpr std::size_t kReserveAtOnce = 64 << 10;

struct Parsed {
  Request request;
  std::uint64_t content_length = 0;
  bool http_1_1 = false;
  bool keep_alive = false;
  bool expects_continue = false;
  bool has_body = false;
  std::size_t end = 0;  // after its last byte, in the connection's bytes
};

struct Outcome {
  std::vector<Parsed> requests;
  bool has_head = false;  // of a request that is not complete
  int status = 0;         // of the refusal that ends it
  std::string message;
  std::size_t consumed = 0;
};

Parsed result_of(RequestParser& parser, std::size_t end) {
  Parsed out;
  out.content_length = parser.content_length();
  out.http_1_1 = parser.http_1_1();
  out.keep_alive = parser.keep_alive();
  out.expects_continue = parser.expects_continue();
  out.has_body = parser.has_body();
  out.request = std::move(parser.request());
  out.end = end;
  return out;
}

void check_memory(const RequestParser& parser, const RequestParser::Limits& limits,
                  std::size_t waiting, bool has_head) {
  const std::string& body = parser.request().body;
  CHECK(body.size() <= limits.body_bytes);
  // A Content-Length alone reserves no memory.
  CHECK(body.capacity() <= std::max(kReserveAtOnce, 2 * body.size()));
  CHECK(waiting <= (has_head ? RequestParser::kMaxChunkLine : limits.header_bytes));
}

// One connection: bytes that the parser has not consumed are given to it again with the next piece.
class Reader {
 public:
  explicit Reader(const RequestParser::Limits& limits) : limits_(limits), parser_(limits) {}

  // False when the connection is over.
  bool put(std::string_view piece) {
    waiting_ += piece;
    for (;;) {
      const RequestParser::Step step = parser_.put(waiting_);
      CHECK(step.consumed <= waiting_.size());
      waiting_.erase(0, step.consumed);
      outcome_.consumed += step.consumed;
      switch (step.event) {
        case RequestParser::Event::kNeedMore:
          check_memory(parser_, limits_, waiting_.size(), outcome_.has_head);
          return true;
        case RequestParser::Event::kHead:
          CHECK(!outcome_.has_head);
          outcome_.has_head = true;
          CHECK(parser_.request().body.empty());
          break;
        case RequestParser::Event::kRefused:
          outcome_.status = parser_.status();
          outcome_.message = parser_.message();
          CHECK(outcome_.status >= 400 && outcome_.status < 600 && !outcome_.message.empty());
          return false;
        case RequestParser::Event::kDone:
          CHECK(outcome_.has_head);
          outcome_.has_head = false;
          outcome_.requests.push_back(result_of(parser_, outcome_.consumed));
          parser_ = RequestParser(limits_);
          if (waiting_.empty()) return true;
          break;
      }
    }
  }

  Outcome& outcome() { return outcome_; }

 private:
  RequestParser::Limits limits_;
  RequestParser parser_;
  std::string waiting_;
  Outcome outcome_;
};

// Pieces of the given lengths, in turn; 0 is the rest.
Outcome read_in_pieces(std::string_view bytes, const std::vector<std::uint8_t>& lengths,
                       const RequestParser::Limits& limits) {
  Reader reader(limits);
  for (std::size_t turn = 0; !bytes.empty(); ++turn) {
    const std::size_t length = lengths.empty() ? 0 : lengths[turn % lengths.size()];
    const std::string_view piece = bytes.substr(0, length == 0 ? bytes.size() : length);
    bytes.remove_prefix(piece.size());
    if (!reader.put(piece)) break;
  }
  return std::move(reader.outcome());
}

void check_same(const Outcome& a, const Outcome& b) {
  CHECK(a.status == b.status);
  CHECK(a.message == b.message);
  CHECK(a.consumed == b.consumed);
  CHECK(a.has_head == b.has_head);
  CHECK(a.requests.size() == b.requests.size());
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    const Parsed& x = a.requests[i];
    const Parsed& y = b.requests[i];
    CHECK(x.end == y.end && x.content_length == y.content_length && x.has_body == y.has_body);
    CHECK(x.http_1_1 == y.http_1_1 && x.keep_alive == y.keep_alive);
    CHECK(x.expects_continue == y.expects_continue);
    CHECK(x.request.method == y.request.method && x.request.path == y.request.path);
    CHECK(x.request.query == y.request.query && x.request.body == y.request.body);
    CHECK(x.request.headers.size() == y.request.headers.size());
    for (std::size_t h = 0; h < x.request.headers.size(); ++h) {
      CHECK(x.request.headers[h].name == y.request.headers[h].name);
      CHECK(x.request.headers[h].value == y.request.headers[h].value);
    }
  }
}

// ---------------------------------------------------------------- the slow parser

// The body's framing by a complete head, read again from the reported fields.
struct Framing {
  int lengths = 0;
  int codings = 0;
  int hosts = 0;
  std::uint64_t length = 0;
};

std::string lower_text(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

Framing framing_of(const std::vector<Header>& headers, std::size_t most) {
  Framing framing;
  for (const Header& header : headers) {
    const std::string name = lower_text(header.name);
    framing.hosts += name == "host" ? 1 : 0;
    if (name == "transfer-encoding") {
      ++framing.codings;
      CHECK(lower_text(header.value) == "chunked");
    }
    if (name != "content-length") continue;
    CHECK(!header.value.empty());
    std::uint64_t length = 0;
    for (const char digit : header.value) {
      CHECK(digit >= '0' && digit <= '9');
      length = length * 10 + static_cast<std::uint64_t>(digit - '0');
      CHECK(length <= most);
    }
    CHECK(framing.lengths++ == 0 || length == framing.length);
    framing.length = length;
  }
  return framing;
}

// Removes the first line from `text` and returns it without its end; nothing when it has no end.
std::optional<std::string_view> take_line(std::string_view& text) {
  const std::size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  return line;
}

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

// One digit at a time; the first other byte ends the size.
std::uint64_t chunk_size(std::string_view line, std::size_t most) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::string text = lower_text(line);
  std::uint64_t size = 0;
  std::size_t at = 0;
  for (; at < text.size() && kDigits.find(text[at]) != std::string_view::npos; ++at) {
    size = size * 16 + kDigits.find(text[at]);
    CHECK(size <= most);
  }
  CHECK(at > 0);
  const std::string_view rest = without_blanks(line.substr(at));
  CHECK(rest.empty() || rest.front() == ';');
  return size;
}

// Reads a chunked body at the front of `text` and removes it.
std::string joined_chunks(std::string_view& text, std::size_t most) {
  std::string body;
  for (;;) {
    const auto line = take_line(text);
    CHECK(line && line->size() + 2 <= RequestParser::kMaxChunkLine);
    CHECK(line->find('\n') == std::string_view::npos);
    const std::uint64_t size = chunk_size(*line, most);
    if (size == 0) break;
    CHECK(text.size() >= size + 2);
    for (std::uint64_t i = 0; i < size; ++i) body += text[i];
    text.remove_prefix(size);
    CHECK(take_line(text) == "");
  }
  const std::size_t before = text.size();
  for (;;) {
    const auto line = take_line(text);
    CHECK(line && line->find('\n') == std::string_view::npos);
    if (line->empty()) break;
  }
  CHECK(before - text.size() <= RequestParser::kMaxChunkLine);
  return body;
}

// `text` is exactly one accepted request.
void check_accepted(std::string_view text, const Parsed& parsed,
                    const RequestParser::Limits& limits) {
  const std::size_t whole = text.size();
  const Request& request = parsed.request;
  const auto start = take_line(text);
  CHECK(start && start->find('\n') == std::string_view::npos);
  CHECK(start->starts_with(request.method + " "));
  CHECK(start->ends_with(parsed.http_1_1 ? " HTTP/1.1" : " HTTP/1.0"));
  CHECK(start->find(request.query) != std::string_view::npos);
  for (const Header& header : request.headers) {
    const auto line = take_line(text);
    CHECK(line && line->find_first_of("\r\n") == std::string_view::npos);
    CHECK(line->starts_with(header.name + ":"));
    CHECK(!header.name.empty() && header.name.find_first_of(" \t\r\n:") == std::string::npos);
    CHECK(without_blanks(line->substr(header.name.size() + 1)) == header.value);
  }
  CHECK(request.headers.size() <= RequestParser::kMaxFields);
  CHECK(take_line(text) == "");
  CHECK(whole - text.size() <= limits.header_bytes);

  const Framing framing = framing_of(request.headers, limits.body_bytes);
  CHECK(framing.lengths == 0 || framing.codings == 0);
  CHECK(framing.codings <= 1 && framing.hosts <= 1);
  CHECK(!parsed.http_1_1 || framing.hosts == 1);
  CHECK(framing.codings == 0 || parsed.http_1_1);
  CHECK(parsed.has_body == (framing.codings > 0 || framing.length > 0));
  CHECK(!parsed.expects_continue || (parsed.has_body && parsed.http_1_1));
  CHECK(parsed.content_length == framing.length);
  if (framing.codings > 0) {
    CHECK(joined_chunks(text, limits.body_bytes) == request.body);
    CHECK(text.empty());
  } else {
    CHECK(text.size() == framing.length && text == request.body);
  }
  CHECK(request.body.size() <= limits.body_bytes);
}

// An accepted request, written again in the strictest form, is accepted and means the same.
void check_written_again(const Parsed& parsed, const RequestParser::Limits& limits) {
  const Request& request = parsed.request;
  std::string text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::size_t half = request.body.size() / 2;
  for (const std::string& chunk : {request.body.substr(0, half), request.body.substr(half)}) {
    if (chunk.empty()) continue;
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string size;
    for (std::size_t n = chunk.size(); n > 0; n /= 16) size.insert(size.begin(), kDigits[n % 16]);
    text.append(size).append("\r\n").append(chunk).append("\r\n");
  }
  text += "0\r\n\r\n";
  const Outcome outcome = read_in_pieces(text, {}, {1024, limits.body_bytes});
  CHECK(outcome.status == 0 && outcome.requests.size() == 1);
  CHECK(outcome.requests.front().request.body == request.body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const RequestParser::Limits& limits = kLimits[data[0] % std::size(kLimits)];
  const std::size_t cuts = std::min<std::size_t>(data[1] % 16, size - 2);
  const std::vector<std::uint8_t> lengths(data + 2, data + 2 + cuts);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2 + cuts, size - 2 - cuts);

  const Outcome whole = read_in_pieces(bytes, {}, limits);
  check_same(whole, read_in_pieces(bytes, lengths, limits));
  check_same(whole, read_in_pieces(bytes, {1}, limits));
  std::size_t begin = 0;
  for (const Parsed& parsed : whole.requests) {
    check_accepted(bytes.substr(begin, parsed.end - begin), parsed, limits);
    check_written_again(parsed, limits);
    begin = parsed.end;
  }
  return 0;
}
