// Flight: one request in flight and its streamed answer, timed as its client sees it.
// Owner: the run, which uses a flight again for a later request. Threads: the event loop's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "http/http_client.h"
#include "loadgen/sse_parser.h"
#include "loadgen/stream_chunk.h"
#include "workload/serving_summary.h"

namespace sluice {

// The answer to one request.
struct AnswerDetail {
  std::vector<float> gaps_s;  // between its chunks
  std::string text;
};

class Flight;

// The run's interface for its flights.
class FlightEvents {
 public:
  virtual ~FlightEvents() = default;
  virtual Duration now() const = 0;  // since the run's start
  virtual ChunkReader& reader() = 0;
  virtual bool keeps_answers() const = 0;
  // `gap`: since the chunk before; nothing for the first.
  virtual void on_token(Duration now, std::optional<Duration> gap) = 0;
  // The record is complete. Last call.
  virtual void on_landed(Flight& flight) = 0;
};

class Flight final : public http::ResponseSink {
 public:
  explicit Flight(FlightEvents& events) : events_(events) {}

  // Call before HttpClient::start().
  void begin(Duration arrival, Duration sent, std::int32_t prompt_tokens);
  // Called when the run ends and this request is unfinished.
  void give_up(Duration now);

  const RequestRecord& record() const { return record_; }
  // Whether any byte of an answer has arrived.
  bool answered() const { return status_ != 0; }
  std::int32_t chunks() const { return chunks_; }
  // Empty unless FlightEvents::keeps_answers().
  AnswerDetail take_answer() { return std::move(answer_); }

 private:
  void on_head(const http::ResponseHead& head) override;
  void on_body(std::string_view piece) override;
  void on_end(Status status) override;
  void on_event(std::string_view data);
  void on_chunk(const StreamChunk& chunk);
  void take_token(Duration now, std::string_view text);
  void fail(std::string message);
  std::string what_is_wrong(const Status& status);

  FlightEvents& events_;
  RequestRecord record_;
  SseParser events_parser_;
  AnswerDetail answer_;
  std::string refusal_;  // the body of an answer that is not a stream
  int status_ = 0;
  std::int32_t chunks_ = 0;
  std::int32_t usage_tokens_ = -1;
  bool streamed_ = false;
  bool ended_ = false;  // finish_reason or [DONE]
};

}  // namespace sluice
