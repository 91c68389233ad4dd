#include "loadgen/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr std::size_t kMaxRefusalBytes = 64 << 10;
constexpr std::string_view kEventStream = "text/event-stream";

}  // namespace

void Flight::begin(Duration arrival, Duration sent, std::int32_t prompt_tokens) {
  record_ = {};
  record_.arrival = arrival;
  record_.sent = sent;
  record_.prompt_tokens = prompt_tokens;
  events_parser_ = {};
  refusal_.clear();
  answer_ = {};
  status_ = 0;
  chunks_ = 0;
  usage_tokens_ = -1;
  streamed_ = false;
  ended_ = false;
}

void Flight::give_up(Duration now) {
  record_.ended = now;
  record_.output_tokens = std::max(chunks_, usage_tokens_);
}

void Flight::on_head(const http::ResponseHead& head) {
  status_ = head.status;
  const std::string* type = head.header("content-type");
  streamed_ = head.status == 200 && type != nullptr && type->starts_with(kEventStream);
}

void Flight::on_body(std::string_view piece) {
  if (!streamed_) {
    const std::size_t room = kMaxRefusalBytes - std::min(kMaxRefusalBytes, refusal_.size());
    refusal_ += piece.substr(0, room);
    return;
  }
  if (!record_.error.empty()) return;
  if (!events_parser_.put(piece, [this](std::string_view data) { on_event(data); })) {
    fail(fmt::format("an event of the stream is longer than {} bytes", SseParser::kMaxEventBytes));
  }
}

void Flight::on_event(std::string_view data) {
  if (!record_.error.empty()) return;
  if (data == "[DONE]") {
    ended_ = true;
    return;
  }
  const auto chunk = events_.reader().read(data);
  if (!chunk) return fail(chunk.error().message);
  if (!chunk->error.empty()) return fail(chunk->error);
  on_chunk(*chunk);
}

void Flight::on_chunk(const StreamChunk& chunk) {
  if (chunk.has_usage) {
    usage_tokens_ = chunk.completion_tokens;
    if (chunk.prompt_tokens > 0) record_.prompt_tokens = chunk.prompt_tokens;
  }
  if (!chunk.has_choice) return;
  // A chat begins with a chunk that has only the role and ends with one that has only the reason;
  // neither is a token. But if no token of an answer has text, its end counts as the first token.
  if (chunk.has_token || (chunk.ended && chunks_ == 0)) take_token(events_.now(), chunk.text);
  ended_ = ended_ || chunk.ended;
}

void Flight::take_token(Duration now, std::string_view text) {
  ++chunks_;
  std::optional<Duration> gap;
  if (record_.last_token) gap = now - *record_.last_token;
  if (!record_.first_token) record_.first_token = now;
  record_.last_token = now;
  if (events_.keeps_answers()) {
    if (gap) answer_.gaps_s.push_back(static_cast<float>(to_seconds(*gap)));
    answer_.text += text;
  }
  events_.on_token(now, gap);
}

void Flight::fail(std::string message) { record_.error = std::move(message); }

// "" when the answer is good.
std::string Flight::what_is_wrong(const Status& status) {
  if (!record_.error.empty()) return record_.error;
  if (!status) return status.error().message;
  if (status_ != 200) {
    return fmt::format("HTTP {}: {}", status_, events_.reader().error_message(refusal_));
  }
  if (!streamed_) return "HTTP 200, but the answer is not an event stream (Content-Type)";
  if (!ended_) return "the stream ended without a finish_reason and without [DONE]";
  return {};
}

void Flight::on_end(Status status) {
  record_.error = what_is_wrong(status);
  record_.finished = record_.error.empty();
  record_.ended = events_.now();
  record_.output_tokens = usage_tokens_ >= 0 ? usage_tokens_ : chunks_;
  events_.on_landed(*this);
}

}  // namespace sluice
