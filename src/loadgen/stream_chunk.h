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
  // Whether the chunk carries a token. For a chat: its content, reasoning or tool call is not
  // empty. For a completion: always, because some servers send a chunk for each token even if its
  // text is held back; except for an empty last chunk, which other servers add.
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

  // Parses an event's data other than "[DONE]". kInvalidArgument if it is not a chunk object.
  Result<StreamChunk> read(std::string_view json);
  // The message of an error answer: {"error": {"message": ...}} or an older form of vLLM; else the
  // text itself, truncated.
  std::string error_message(std::string_view body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
