// StreamChunk: one event of an OpenAI stream, as far as a load generator needs it.
// ChunkReader keeps its buffers from event to event. Owner: the run; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

struct StreamChunk {
  bool has_choice = false;
  // A token came: a chat's content, reasoning or tool call, not empty; any piece of a completion,
  // since some servers send one for each token, also when its text is held back, but an empty last
  // one, which others send besides.
  bool has_token = false;
  std::string_view text;  // of the token; until the next read()
  bool ended = false;     // a finish_reason
  bool has_usage = false;
  std::int32_t prompt_tokens = 0;
  std::int32_t completion_tokens = 0;
  std::string error;  // not empty: the server's message; the answer ends here
};

class ChunkReader {
 public:
  ChunkReader();
  ~ChunkReader();
  ChunkReader(const ChunkReader&) = delete;
  ChunkReader& operator=(const ChunkReader&) = delete;

  // An event's data but "[DONE]". kInvalidArgument when it is not such an object.
  Result<StreamChunk> read(std::string_view json);
  // The message of an answer that is an error: {"error": {"message": ...}}, also as vLLM once had
  // it; else the text itself, cut short.
  std::string error_message(std::string_view body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
