// Parses a connection's bytes as responses, their bodies as events, and events as chunks of a
// stream, cut into pieces at any places. However they are cut, the heads, bodies, events and
// refusals are the same. The memory in use stays within the limits.
// Input: how many cuts (up to 15), the length of each piece, then the connection.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "http/response_parser.h"
#include "loadgen/sse_parser.h"
#include "loadgen/stream_chunk.h"

namespace {

using sluice::ChunkReader;
using sluice::SseParser;
using sluice::http::ResponseHead;
using sluice::http::ResponseParser;

struct Outcome {
  std::vector<ResponseHead> heads;
  std::string bodies;
  std::vector<std::string> events;
  std::string refusal;
  std::size_t consumed = 0;
  bool keep_alive = true;
  bool ends_well = false;  // where the bytes end
};

class Reader {
 public:
  explicit Reader(Outcome& outcome) : out_(outcome) {}

  // False when the connection is over.
  bool put(std::string_view piece) {
    waiting_ += piece;
    for (;;) {
      const ResponseParser::Step step = parser_.put(waiting_);
      CHECK(step.consumed <= waiting_.size());
      CHECK(step.body.empty() == (step.event != ResponseParser::Event::kBody));
      out_.consumed += step.consumed;
      if (step.event == ResponseParser::Event::kBody) take_body(step.body);
      waiting_.erase(0, step.consumed);
      switch (step.event) {
        case ResponseParser::Event::kNeedMore:
          CHECK(waiting_.size() <= ResponseParser::kMaxHeadBytes);
          return true;
        case ResponseParser::Event::kHead: take_head(); break;
        case ResponseParser::Event::kBody: break;
        case ResponseParser::Event::kRefused:
          out_.refusal = parser_.message();
          CHECK(!out_.refusal.empty());
          return false;
        case ResponseParser::Event::kDone:
          out_.keep_alive = parser_.keep_alive();
          if (!out_.keep_alive) return false;
          parser_ = {};
          events_ = {};
          streaming_ = true;
          if (waiting_.empty()) return true;
          break;
      }
    }
  }

  void end() {
    if (out_.refusal.empty() && out_.keep_alive) out_.ends_well = parser_.end_of_input();
  }

 private:
  void take_head() {
    const ResponseHead& head = parser_.head();
    CHECK(head.status >= 200 && head.status <= 999);
    CHECK(head.headers.size() <= ResponseParser::kMaxFields);
    out_.heads.push_back(head);
  }

  void take_body(std::string_view body) {
    out_.bodies += body;
    if (!streaming_) return;
    streaming_ = events_.put(body, [&](std::string_view data) {
      out_.events.emplace_back(data);
      const auto chunk = reader_.read(data);
      CHECK(chunk.has_value() || !chunk.error().message.empty());
      CHECK(reader_.error_message(data).size() <= 203);
    });
  }

  Outcome& out_;
  ResponseParser parser_;
  SseParser events_;
  ChunkReader reader_;
  std::string waiting_;
  bool streaming_ = true;
};

// Pieces of the given lengths, in turn; 0 is the rest.
Outcome read_in_pieces(std::string_view bytes, const std::vector<std::uint8_t>& lengths) {
  Outcome outcome;
  Reader reader(outcome);
  for (std::size_t turn = 0; !bytes.empty(); ++turn) {
    const std::size_t length = lengths.empty() ? 0 : lengths[turn % lengths.size()];
    const std::string_view piece = bytes.substr(0, length == 0 ? bytes.size() : length);
    bytes.remove_prefix(piece.size());
    if (!reader.put(piece)) return outcome;
  }
  reader.end();
  return outcome;
}

void check_same(const Outcome& a, const Outcome& b) {
  CHECK(a.refusal == b.refusal && a.consumed == b.consumed);
  CHECK(a.keep_alive == b.keep_alive && a.ends_well == b.ends_well);
  CHECK(a.bodies == b.bodies && a.events == b.events);
  CHECK(a.heads.size() == b.heads.size());
  for (std::size_t i = 0; i < a.heads.size(); ++i) {
    const ResponseHead& x = a.heads[i];
    const ResponseHead& y = b.heads[i];
    CHECK(x.status == y.status && x.reason == y.reason && x.headers.size() == y.headers.size());
    for (std::size_t h = 0; h < x.headers.size(); ++h) {
      CHECK(x.headers[h].name == y.headers[h].name && x.headers[h].value == y.headers[h].value);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t cuts = std::min<std::size_t>(data[0] % 16, size - 1);
  const std::vector<std::uint8_t> lengths(data + 1, data + 1 + cuts);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1 + cuts, size - 1 - cuts);
  const Outcome whole = read_in_pieces(bytes, {});
  check_same(whole, read_in_pieces(bytes, lengths));
  check_same(whole, read_in_pieces(bytes, {1}));
  return 0;
}
