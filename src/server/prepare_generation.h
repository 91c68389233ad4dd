// Turns a parsed call into what the engine and the answer need: prompts as tokens with the names of
// their blocks, complete sampling parameters, and a text stream for each choice.
// Threads: a worker's; this work is too long for the event loop and the engine's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter_store.h"
#include "base/stop_check.h"
#include "front/prompt_builder.h"
#include "front/reasoning_stream.h"
#include "front/text_stream.h"
#include "front/tool_format.h"
#include "request/sampling_params.h"
#include "server/api_error.h"
#include "server/generation_call.h"
#include "server/resume_store.h"

namespace sluice {

// One prompt of a call; becomes one request of the engine.
struct PromptPart {
  PreparedPrompt prompt;
  SamplingParams sampling;
  std::vector<TextStream> streams;  // one per choice
  std::string echo;                 // the prompt's text, when the call wants it back
  // With echo and logprobs: where each token of the prompt begins in `echo`, in code points.
  std::vector<std::int64_t> echo_offsets;
  // How reasoning stands in the answer; nullptr: nothing in it is read as reasoning.
  const ReasoningFormat* reasoning = nullptr;
  bool begins_inside_reasoning = false;
};

struct PreparedGeneration {
  GenerationCall call;  // without its prompts
  // How calls stand in the answer; nullptr: nothing in it is read as a call.
  const ToolFormat* tool_format = nullptr;
  ToolParameters tool_parameters;
  std::vector<PromptPart> parts;
  SharedAdapter adapter;                   // null: the base model
  std::int32_t function = -1;              // Request::function
  Pooling pooling = Pooling::kNone;        // kEmbedding
  std::optional<ResumeStore::Key> resume;  // absent: a stopping server does not save the answer
  std::vector<TokenId> resumed;            // its tokens so far, of an earlier server
  std::size_t held_bytes = 0;  // of its whole answer, at most (answer_size.h); 0 for a stream
};

// Whether an answer can go on in another server: one choice that needs nothing but its tokens.
bool is_resumable(const PreparedGeneration& prepared);

// `key_name`: whose API key it is, empty without keys. Its prompts share no cached block with those
// of other keys.
// `adapter`: the call's; null = the base model.
// Returns the error of `stop` as soon as it asks to stop.
ApiResult<PreparedGeneration> prepare_generation(PromptWorker& worker, GenerationCall call,
                                                 std::string_view key_name,
                                                 const StopCheck& stop = {},
                                                 SharedAdapter adapter = nullptr);

// The API's error for a prompt; `param` is the field that holds the prompt.
ApiError to_api_error(const PromptError& error, std::string param);

// Whether the model's chat template shows tools to the model; if not, describe_tools() does.
bool shows_tools(const ServedModel& model);

// A chat as the renderer takes it. The texts stay the caller's.
ChatParts chat_parts(const ChatPart& chat);

}  // namespace sluice
