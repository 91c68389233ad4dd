// AnswerWriter: the events of one streamed answer in a dialect of the API, with their framing; and
// the JSON of whole answers. One implementation for each dialect (dialect.h).
// Owner: a Generation. Threads: the event loop's; the functions are pure, any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "server/api_error.h"
#include "server/response_json.h"

namespace sluice {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // All append events to `out`. `usage` counts the tokens so far.
  virtual void append_chunk(const ChunkPart& part, const Usage& usage, std::string& out) = 0;
  // The stream has ended: every choice has had its last chunk.
  virtual void append_end(const Usage& usage, std::string& out) = 0;
  // The stream ends with an error.
  virtual void append_error(const ApiError& error, std::string& out) = 0;
};

// `include_usage`: OpenAI's chats and completions have a last chunk with usage.
std::unique_ptr<AnswerWriter> make_answer_writer(const AnswerHead& head, bool include_usage);

// The JSON of a whole answer.
std::string whole_answer_json(const AnswerHead& head, std::span<const ChoiceAnswer> choices,
                              const Usage& usage);

// "event: TYPE" and the data, as a server-sent event.
void append_event(std::string_view type, std::string_view json, std::string& out);

}  // namespace sluice
